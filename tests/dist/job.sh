#!/usr/bin/env bash
# The main job of the command: put, get, materialize, gc, verify. job.sh DIRECTORY INSIDE COMMAND...
# DIRECTORY is new, and COMMAND sees it as INSIDE: they differ where it runs in a root of its own.
set -euo pipefail
directory=$1 inside=$2
shift 2
command=("$@")

store() { env HOME="$inside/home" STORE_URL="$inside/store" "${command[@]}" --quiet "$@"; }
stored() { du -sb "$directory/store" | cut -f1; }
fail() {
    echo "tests/dist: ${command[*]}: $*" >&2
    exit 1
}

mkdir -p "$directory/tree/below" "$directory/home"
head -c 4000000 /dev/urandom >"$directory/tree/large"
seq 100000 >"$directory/tree/below/numbers"
printf '#!/bin/sh\n' >"$directory/tree/below/run"
chmod 0755 "$directory/tree/below/run"
ln -s below/numbers "$directory/tree/link"
cp -a "$directory/tree" "$directory/first"

store init
store put "$inside/tree" project/dist/tree
head -c 4000000 /dev/urandom >"$directory/tree/large"
store put "$inside/tree" project/dist/tree

store get project/dist/tree@1 "$inside/out"
diff -r --no-dereference "$directory/first" "$directory/out"
[ -x "$directory/out/below/run" ] || fail "get lost an executable bit"

store materialize project/dist/tree "$inside/job"
diff -r --no-dereference "$directory/tree" "$directory/job"
[ "$(stat -c %h "$directory/job/large")" -gt 1 ] || fail "materialize made no link into the pool"

before=$(stored)
store rm project/dist/tree@1
for _ in condemn delete; do store gc --min-age 0 --grace 0; done
[ $((before - $(stored))) -gt 3500000 ] || fail "gc gave nothing back: $before bytes before, $(stored) after"
status=0
store get project/dist/tree@1 "$inside/dropped" 2>/dev/null || status=$?
[ "$status" = 3 ] || fail "a version that was dropped: exit code $status, not 3"

store verify --read-data
store get project/dist/tree "$inside/again"
diff -r --no-dereference "$directory/tree" "$directory/again"
