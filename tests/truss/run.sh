#!/usr/bin/env bash
# truss            the cache summary of truss, unmodified, from PyPI, beside `store summarize --truss`
# A server of the suite on loopback answers for the platform, a dummy key. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/truss
if ! cmp -s tests/truss/requirements.txt "$place/installed"; then
    rm -rf "$place"
    /usr/bin/python3 -m venv --without-pip "$place"
    python3 -m pip --disable-pip-version-check --python "$place/bin/python" install --quiet --no-deps --requirement tests/truss/requirements.txt
    cp tests/truss/requirements.txt "$place/installed"
fi
cargo build --quiet -p cli
exec python3 -B tests/truss/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python"
