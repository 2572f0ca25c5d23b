#!/usr/bin/env bash
# hub [VERSION...]       clients of Hugging Face, unmodified, from PyPI and by cargo, read and write through `store serve`
# The environments of tests/clients. A hub of our own and the server on loopback, dummy tokens. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/clients/setup.sh
cargo build --quiet -p cli
# The Rust clients have a lock file of their own.
CARGO_TARGET_DIR=target/hub-rust cargo build --quiet --locked --manifest-path tests/hub/rust/Cargo.toml
export RUST=target/hub-rust/debug/hub-rust
exec python3 -B tests/hub/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" target/clients "$@"
