#!/usr/bin/env bash
# neuron           the cache of optimum-neuron, unmodified, from PyPI, in pulled directories and through `store serve`
# torch, transformers and the runtime of Neuron, which need the accelerator, are stubs. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/neuron
if ! cmp -s tests/neuron/requirements.txt "$place/installed"; then
    rm -rf "$place"
    /usr/bin/python3 -m venv --without-pip "$place"
    python3 -m pip --disable-pip-version-check --python "$place/bin/python" install --quiet --no-deps --requirement tests/neuron/requirements.txt
    cp tests/neuron/requirements.txt "$place/installed"
fi
cargo build --quiet -p cli
exec python3 -B tests/neuron/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python"
