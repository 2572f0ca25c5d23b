#!/usr/bin/env bash
# Makes one virtual environment for each generation of clients, in target/clients, from the versions in hub-*.txt.
# What is there and complete is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for versions in tests/clients/hub-*.txt; do
    name=$(basename "$versions" .txt)
    place=target/clients/$name
    if cmp -s "$versions" "$place/installed"; then
        continue
    fi
    echo "tests/clients: installing $name" >&2
    rm -rf "$place"
    # The system's interpreter: jobs run as another user, who may not look into somebody's home.
    /usr/bin/python3 -m venv --without-pip "$place"
    pip=(python3 -m pip --disable-pip-version-check --python "$place/bin/python")
    "${pip[@]}" install --quiet --no-deps --requirement "$versions"
    "${pip[@]}" check >&2
    cp "$versions" "$place/installed"
done
