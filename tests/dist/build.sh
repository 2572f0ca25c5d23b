#!/usr/bin/env bash
# Builds the wheel, and in it the command, linked by zig against the glibc of run.sh. build.sh GLIBC DIRECTORY
set -euo pipefail
glibc=$1 directory=$2

tools=target/dist/tools
if ! cmp -s tests/dist/tools.txt "$tools/installed"; then
    echo "tests/dist: installing $(grep -v '^#' tests/dist/tools.txt | xargs)" >&2
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --requirement tests/dist/tools.txt
    cp tests/dist/tools.txt "$tools/installed"
fi

# Messages of panics name source files. Where they were on the machine that built is nobody's business, and makes two
# builds differ.
target=$(uname -m)-unknown-linux-gnu
cargo fetch --quiet --locked --target "$target"
flags="${RUSTFLAGS:-} --remap-path-prefix=$PWD/="
for sources in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
    flags+=" --remap-path-prefix=$sources="
done

PATH=$PWD/$tools/bin:$PATH RUSTFLAGS=$flags maturin build --manifest-path cli/Cargo.toml --zig \
    --target "$target" --compatibility "manylinux_${glibc/./_}" --out "$directory"
