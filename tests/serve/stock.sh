#!/usr/bin/env bash
# What nextest runs before the tests of stock clients (.config/nextest.toml): makes their environments in target/stock.
# The oldest and the newest client of the suite `hub` without what loads models and tables, and boto3 of `s3-clients`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/support/venv.sh
heavy='^(datasets|dill|multiprocess|numpy|pandas|pyarrow|python-dateutil|regex|safetensors|tokenizers|transformers|tzdata|xxhash)=='
mkdir -p target/stock
for generation in hub-0.36.2 hub-2.4.0; do
    grep -vE "$heavy" "tests/clients/$generation.txt" >"target/stock/$generation.txt"
    venv "target/stock/$generation" "target/stock/$generation.txt"
done
grep -vE '^(awscli|colorama|docutils|pyasn1|PyYAML|rsa)==' tests/s3-clients/boto.txt >target/stock/boto.txt
venv target/stock/boto target/stock/boto.txt check
