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

# Files; the binaries of the package `tests` that are built for them, and which of their tests are run: a filter of nextest.
table() {
    local beside='test(/^(between|collect|collectors|lost|long|repacked|replicate|replicators|schedules|underfoot|wide)::/)'
    local round='test(/^(broken|collect|damage|golden|input|interleaved|origins|roundtrip|settled|stores|travel|wide)::/)'
    cat <<TABLE
store/src/log.rs|engine|$round
store/src/log/*.rs|engine|$round
store/src/session.rs|engine|$beside
store/src/session/*.rs|engine|$beside
store/src/put/*.rs|engine|$round
store/src/index.rs|engine|$beside
store/src/index/*.rs|engine|$beside
store/src/graph/*.rs|engine|$beside
store/src/pack/*.rs|engine|$round
store/src/codec.rs|engine formats|$round or binary(=formats)
store/src/chunk.rs|engine formats|$round or binary(=formats)
store/src/format/segment.rs|formats|all()
store/src/format/pack.rs|formats|all()
store/src/format/state.rs|engine formats|$beside or binary(=formats)
store/src/format/tree.rs|formats|all()
store/src/format/list.rs|formats|all()
store/src/host/stat_cache/*.rs|engine|$round
store/src/host/pool/*.rs|pool|all()
store/src/materialize/*.rs|pool|all()
store/src/materialize/*/*.rs|pool|all()
store/src/replicate/*.rs|engine|$beside
store/src/remote/directory.rs|disk|all()
store/src/remote/bucket.rs|buckets|all()
store/src/remote/bucket/*.rs|buckets|all()
store/src/remote/bucket/*/*.rs|buckets|all()
gc/src/*.rs|engine|$beside
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

# mutate FILE BINARIES FILTER: all mutants of one file, or of its part; cargo-mutants exits with 2 where some are missed.
# Only the named binaries are built, of the whole workspace: with other packages come other features, and all is built anew.
mutate() {
    local file=$1 binaries=$2 filter=$3 package out status=0 targets='"--lib"' binary
    package=${file%%/*}
    out=$results/${file//\//-}
    for binary in $binaries; do targets+=", \"--test=$binary\""; done
    mkdir -p "$out"
    cat >"$out/config.toml" <<CONFIG
additional_cargo_args = [$targets]
additional_cargo_test_args = ["-E", "(package($package) & kind(lib)) | (package(tests) & kind(test) & ($filter))"]
CONFIG
    cargo mutants --config "$out/config.toml" --file "$file" --test-workspace true --test-tool nextest \
        --copy-target true --no-shuffle --output "$out" ${shard:+--shard "$shard"} </dev/null || status=$?
    case $status in 0 | 2 | 3) ;; *) echo "mutants: $file: cargo-mutants ended with $status" >&2; exit 1 ;; esac
}

is_wanted() {
    [ ${#files[@]} -eq 0 ] && return
    local wanted
    for wanted in "${files[@]}"; do
        [ "$wanted" != "$1" ] || return 0
    done
    return 1
}

# Asks the table for each file that was named; without one, takes every file of the table once.
while IFS='|' read -r pattern binaries filter; do
    for file in $pattern; do
        [ -f "$file" ] || { echo "mutants: $pattern: the table names what is not there" >&2; exit 1; }
        case $file in *tests.rs | */tests/*) continue ;; esac
        ! is_wanted "$file" || mutate "$file" "$binaries" "$filter"
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
