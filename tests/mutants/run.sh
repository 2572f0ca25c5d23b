#!/usr/bin/env bash
# mutants [FILE...] [--sample N [--seed S]]  slips made by a machine (cargo-mutants) in the load-bearing files: which does no test see?
#
# The first run builds one tree with all slips behind switches (10 minutes) and runs every test once (20 minutes); then a
# minute tries twenty slips. The table counts what compiles: caught (a test failed, or hung), and missed. Exit code 1 when
# fewer than 90 in a hundred are caught. What was missed stands below the table; what changes nothing that can be seen is
# among it. Needs root, for tests run in namespaces of their own. STORE_MUTANTS_DIR keeps the tree, its build and what
# came of each slip, so that a run that was stopped goes on; what was missed is tried again. It is not below /tmp or
# /var/tmp, which the tests have for themselves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

need_cargo() {
    cargo "$2" --version >/dev/null 2>&1 || cargo install "$1" --locked
}

need_cargo cargo-mutants mutants
venv=target/mutants/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import tree_sitter_rust' 2>/dev/null ||
    "$venv/bin/pip" install --quiet 'tree-sitter==0.26.1' 'tree-sitter-rust==0.24.2'
results=$(realpath -m "${STORE_MUTANTS_DIR:-$(mktemp -d target/mutants/results.XXXXXX)}")
[ -n "${STORE_MUTANTS_DIR:-}" ] || trap 'rm -rf "$results"' EXIT
case "$results/" in
/tmp/* | /var/tmp/*)
    echo "tests/run mutants: $results is where the tests write: set STORE_MUTANTS_DIR to a directory elsewhere" >&2
    exit 2
    ;;
esac
bash tests/servers/install.sh
target/servers/moto/bin/python -B tests/servers/servers.py run moto ceph s3rver -- \
    "$venv/bin/python" -B tests/mutants/mutants.py --results "$results" "$@"
