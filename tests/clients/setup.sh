#!/usr/bin/env bash
# Makes one virtual environment for each generation of clients, in target/clients, from the versions in hub-*.txt.
# What is there and complete is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/support/venv.sh
for versions in tests/clients/hub-*.txt; do
    venv "target/clients/$(basename "$versions" .txt)" "$versions" check
done
