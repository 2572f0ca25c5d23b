#!/usr/bin/env bash
# neuron           the cache of optimum-neuron, unmodified, from PyPI, in pulled directories and through `store serve`
# torch, transformers and the runtime of Neuron, which need the accelerator, are stubs. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/neuron
. tests/support/venv.sh
venv "$place" tests/neuron/requirements.txt
cargo build --quiet -p cli
exec python3 -B tests/neuron/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python"
