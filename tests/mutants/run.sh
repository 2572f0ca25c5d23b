#!/usr/bin/env bash
# mutants [FILE...] [--sample N [--seed S]]  slips made by a machine (cargo-mutants) in the load-bearing files: which does no test see?
#
# All of them take days; a sample says in hours how many in a hundred are caught, give or take. The table counts those
# that compile: caught (a test failed, or hung), and missed. Exit code 1 when fewer than 90 in a hundred are caught.
# What was missed stands below the table. STORE_MUTANTS_DIR keeps the tree, its build and what came of each slip, so
# that a run that was stopped goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

need_cargo() {
    cargo "$2" --version >/dev/null 2>&1 || cargo install "$1" --locked
}

need_cargo cargo-nextest nextest
need_cargo cargo-mutants mutants
results=${STORE_MUTANTS_DIR:-$(mktemp -d "${TMPDIR:-/var/tmp}/store-mutants.XXXXXX")}
[ -n "${STORE_MUTANTS_DIR:-}" ] || trap 'rm -rf "$results"' EXIT
python3 tests/mutants/mutants.py --results "$results" "$@"
