#!/usr/bin/env bash
# fuzz [SECONDS [TARGET...]]   every decoder, or the named ones, for SECONDS each (60)
# Begins with the malformed objects of fixtures/. An input that fails lands in tests/fuzz/artifacts:
# name it for its defect, give its generator in tests/formats that defect, and fix the decoder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-60}
shift $(($# > 0 ? 1 : 0))
targets=("$@")
if [ "${#targets[@]}" = 0 ]; then
    mapfile -t targets < <(cd tests/fuzz/targets && printf '%s\n' *.rs | sed 's/\.rs$//')
fi

cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
# The coverage that libFuzzer steers by is a flag that the stable compiler has, but hides.
export RUSTC_BOOTSTRAP=1

for target in "${targets[@]}"; do
    corpus=tests/fuzz/corpus/$target
    mkdir -p "$corpus"
    inputs=("$corpus")
    [ ! -d "fixtures/malformed/$target" ] || inputs+=("fixtures/malformed/$target")
    echo "--- $target" >&2
    cargo fuzz run --fuzz-dir tests/fuzz --sanitizer none "$target" "${inputs[@]}" -- \
        -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -verbosity=0
done
