#!/usr/bin/env bash
# mutants [FILE...] [K/N]  slips made by a machine (cargo-mutants) in the load-bearing files: which does no test see?
#
# Without a file all of the list below, which takes days; K/N is one of N parts of them. A file is mutated in a copy of
# the tree, and for each mutant the tests of its own package run first, then those of the package `tests` that are named for it.
# The table counts mutants that compile: caught (a test failed, or hung), and missed. Exit code 1 when fewer
# than 90 in a hundred are caught. What was missed stands below the table; all of it in STORE_MUTANTS_DIR, if set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
share_min=90

# Files, and the tests of the package `tests` that are run for them: a filter of nextest.
table() {
    local engine='binary(=engine)' beside='binary(=engine) & test(/collect|between|replic|wide|interleaved|repacked/)'
    local pool='binary(=pool) | binary(=materialize)' remote='binary(=disk) | binary(=network)'
    cat <<TABLE
store/src/log.rs|$engine
store/src/session.rs|$beside
store/src/session/*.rs|$beside
store/src/put/*.rs|$engine
store/src/index.rs|$beside
store/src/index/*.rs|$beside
store/src/pack.rs|$engine
store/src/codec.rs|$engine | binary(=formats)
store/src/chunk.rs|$engine | binary(=formats)
store/src/format/segment.rs|binary(=formats)
store/src/format/pack.rs|binary(=formats)
store/src/format/state.rs|binary(=formats) | ($beside)
store/src/format/tree.rs|binary(=formats)
store/src/format/list.rs|binary(=formats)
store/src/stat_cache/*.rs|$engine
store/src/host/pool/*.rs|$pool
store/src/materialize/*.rs|$pool
store/src/materialize/*/*.rs|$pool
store/src/replicate/copy.rs|$beside
store/src/replicate/resume.rs|$beside
store/src/replicate/select.rs|$beside
store/src/replicate/missing.rs|$beside
store/src/remote/directory.rs|$remote
store/src/remote/bucket.rs|$remote
store/src/remote/again.rs|$remote
gc/src/*.rs|$beside
TABLE
}

need_cargo() {
    cargo "$2" --version >/dev/null 2>&1 || cargo install "$1" --locked
}

files=() shard=
for argument in "$@"; do
    case $argument in
    [0-9]*/[0-9]*) shard=$argument ;;
    *)
        [ -f "$argument" ] || { echo "mutants: $argument: there is no such file" >&2; exit 2; }
        files+=("$argument")
        ;;
    esac
done
need_cargo cargo-nextest nextest
need_cargo cargo-mutants mutants
results=${STORE_MUTANTS_DIR:-$(mktemp -d "${TMPDIR:-/var/tmp}/store-mutants.XXXXXX")}
mkdir -p "$results"
[ -n "${STORE_MUTANTS_DIR:-}" ] || trap 'rm -rf "$results"' EXIT

# mutate FILE FILTER: all mutants of one file, or of its part; cargo-mutants exits with 2 where some are missed.
mutate() {
    local file=$1 filter=$2 package out status=0
    package=${file%%/*}
    out=$results/${file//\//-}
    mkdir -p "$out"
    cat >"$out/config.toml" <<CONFIG
additional_cargo_test_args = ["-E", "package($package) | ($filter)"]
CONFIG
    cargo mutants --config "$out/config.toml" --file "$file" --package "$package" \
        --test-package "$package" --test-package tests --test-tool nextest \
        --no-shuffle --output "$out" ${shard:+--shard "$shard"} </dev/null || status=$?
    case $status in 0 | 2 | 3) ;; *) echo "mutants: $file: cargo-mutants ended with $status" >&2; exit 1 ;; esac
}

# Asks the table for each file that was named; without one, takes every file of the table once.
while IFS='|' read -r pattern filter; do
    for file in $pattern; do
        case $file in */tests.rs | *\**) continue ;; esac
        if [ ${#files[@]} -eq 0 ]; then
            mutate "$file" "$filter"
            continue
        fi
        for wanted in "${files[@]}"; do
            [ "$wanted" != "$file" ] || mutate "$file" "$filter"
        done
    done
done < <(table)

python3 - "$results" "$share_min" <<'PYTHON'
import json, pathlib, sys

results, share_min = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rows, missed = [], []
for found in sorted(results.glob("*/mutants.out/outcomes.json")):
    said = json.loads(found.read_text())
    caught = said["caught"] + said["timeout"]
    rows.append((found.parts[-3], caught, said["missed"]))
    for outcome in said["outcomes"]:
        if outcome["summary"] == "MissedMutant":
            missed.append(outcome["scenario"]["Mutant"]["name"])
print("| file | caught | missed | share |\n|---|---|---|---|")
total = ("all", sum(row[1] for row in rows), sum(row[2] for row in rows))
for name, caught, left in rows + [total]:
    share = 100 * caught / max(caught + left, 1)
    print(f"| {name} | {caught} | {left} | {share:.0f} % |")
print(*(f"missed: {name}" for name in missed), sep="\n")
if total[1] + total[2] == 0:
    sys.exit("mutants: none was tried: is the file in the list?")
sys.exit(100 * total[1] < share_min * (total[1] + total[2]))
PYTHON
