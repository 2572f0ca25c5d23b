#!/usr/bin/env bash
# soak             writers, collectors and readers against each other: thousands of seeds, and ten minutes of real processes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Each line is a clause of one binary and its modules: tests/tidy/suites.rs reads them.
reach='
    binary_id(tests::engine) & test(/^(collectors|save_schedules)::/)
    binary_id(tests::buckets) & test(/^(several)::/)
    binary_id(tests::cli) & test(/^(bundles_killed|cache_hosts|cache_workers|herd|run_raced|save|seed|watch)::/)
    binary_id(tests::serve) & test(/^(places)::/)
    binary_id(tests::formats) & test(/^(dice)::/)
'
filter=$(sed '/^ *$/d; s/^ */(/; s/$/)/' <<<"$reach" | paste -sd'|')
STORE_TESTS_SLOW=1 exec cargo nextest run --profile slow --workspace -E "$filter" "$@"
