#!/usr/bin/env bash
# trees [DIR...]   real trees of this machine (/usr/lib, ~/.cargo) put and got back, compared by diff, rsync and sha256sum
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cargo build --release --quiet -p cli
store=$PWD/target/release/store
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-trees.XXXXXX")
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- /usr/lib "${CARGO_HOME:-$HOME/.cargo}"
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config

hashes() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum); }

"$store" --store "$work/store" init
number=0
for tree in "$@"; do
    number=$((number + 1))
    "$store" --store "$work/store" put --profile none "$tree" "project/trees/$number"
    "$store" --store "$work/store" get "project/trees/$number" "$work/out"
    diff -r --no-dereference "$tree" "$work/out"
    # Owners, modes but the executable bit, and hard links are not kept, and not compared.
    differences=$(rsync -n -c -rltE --delete --itemize-changes "$tree/" "$work/out/")
    [ -z "$differences" ] || { echo "$differences" | head >&2; exit 1; }
    cmp <(hashes "$tree") <(hashes "$work/out")
    rm -rf "$work/out"
    echo "$tree: identical"
done
"$store" --store "$work/store" verify --read-data
