#!/usr/bin/env bash
# Makes a virtual environment for each client, in target/s3-clients, from the versions in *.txt, and installs rclone.
# What is there and complete is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v rclone >/dev/null; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    "${root[@]}" apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends rclone >&2
fi
. tests/support/venv.sh
for versions in tests/s3-clients/*.txt; do
    venv "target/s3-clients/$(basename "$versions" .txt)" "$versions" check
done
