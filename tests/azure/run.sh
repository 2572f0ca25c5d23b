#!/usr/bin/env bash
# azure            a store in a container of Azurite: the conformance suite, all verbs, many writers, a killed push
#
# By connection strings with a key and with a shared access signature; both stores are read back and compared. Installs
# Azurite from npm (365 MB) when it is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/servers/install.sh azurite
cargo build --quiet -p cli
cargo build --quiet -p tests --example conformance
target=${CARGO_TARGET_DIR:-target}/debug
exec python3 -B tests/azure/azure.py "$target/store" "$target/examples/conformance"
