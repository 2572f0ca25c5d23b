#!/usr/bin/env bash
# torch            the compile caches of torch.compile on the processor, and of Triton, unmodified, from PyPI
# The first run installs 2 GB; stubs stand for the libraries of CUDA. Needs g++ and python3-dev. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/torch/install.sh
place=target/torch
cargo build --quiet -p cli
exec python3 -B tests/torch/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python" "$place/triton"
