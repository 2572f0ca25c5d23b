#!/usr/bin/env bash
# clients [VERSION...]   clients of Hugging Face, unmodified, from PyPI, in materialized trees
# Three generations of huggingface_hub with datasets, transformers, numpy, pyarrow and safetensors; a hub of our own on
# loopback. The first run installs 2 GB. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/clients/setup.sh
cargo build --quiet -p cli
exec python3 -B tests/clients/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" target/clients "$@"
