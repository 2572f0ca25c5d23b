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
for versions in tests/s3-clients/*.txt; do
    name=$(basename "$versions" .txt)
    place=target/s3-clients/$name
    if cmp -s "$versions" "$place/installed"; then
        continue
    fi
    echo "tests/s3-clients: installing $name" >&2
    rm -rf "$place"
    python3 -m venv --without-pip "$place"
    pip=(python3 -m pip --disable-pip-version-check --python "$place/bin/python")
    "${pip[@]}" install --quiet --no-deps --requirement "$versions"
    "${pip[@]}" check >&2
    cp "$versions" "$place/installed"
done
