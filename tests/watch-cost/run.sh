#!/usr/bin/env bash
# watch-cost [RUNS]      what `store watch` costs a training that keeps every core busy, with and without it in turn
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --release --quiet -p cli
exec python3 -B tests/watch-cost/cost.py "${CARGO_TARGET_DIR:-target}/release/store" "${1:-5}"
