#!/usr/bin/env bash
# garage           a store with one writer on Garage: three nodes, one of them killed while bytes move
#
# All verbs on it; then 300 MB pushed, pushed again and pulled, a node killed in the middle of each, that which is spoken
# to once as well; after each step both stores are read back and compared. Builds Garage when it is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/servers/install.sh garage
cargo build --quiet -p cli
exec python3 -B tests/garage/suite.py "${CARGO_TARGET_DIR:-target}/debug/store"
