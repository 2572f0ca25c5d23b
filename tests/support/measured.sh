# What a suite that measures the command begins with; to be sourced.

# measured: the command is at $store: the one that STORE_BIN names, or else a build.
measured() {
    store=${STORE_BIN:-}
    [ -z "$store" ] || return 0
    cargo build --release --quiet -p cli
    store=${CARGO_TARGET_DIR:-target}/release/store
}

# room NAME: $work is an empty directory for the suite NAME, which goes when the suite ends.
room() {
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-$1.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}
