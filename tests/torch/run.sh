#!/usr/bin/env bash
# torch            the compile caches of torch.compile on the processor, and of Triton, unmodified, from PyPI
# The first run installs 2 GB; stubs stand for the libraries of CUDA. Needs g++ and python3-dev. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/torch
if ! cat tests/torch/requirements.txt tests/torch/stubs.py | cmp -s - "$place/installed"; then
    rm -rf "$place"
    /usr/bin/python3 -m venv --without-pip "$place"
    pip=(python3 -m pip --disable-pip-version-check --python "$place/bin/python" install --quiet --no-cache-dir --no-deps)
    "${pip[@]}" --requirement tests/torch/requirements.txt
    # Beside it, so that torch does not find it: on the processor it has no use for Triton.
    "${pip[@]}" --target "$place/triton" triton==3.7.1
    for torch in "$place"/lib/python3.*/site-packages/torch; do
        python3 -B tests/torch/stubs.py "$torch"
    done
    cat tests/torch/requirements.txt tests/torch/stubs.py >"$place/installed"
fi
cargo build --quiet -p cli
exec python3 -B tests/torch/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python" "$place/triton"
