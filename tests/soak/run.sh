#!/usr/bin/env bash
# soak             writers, collectors and readers against each other: thousands of seeds, and ten minutes of real processes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

STORE_TESTS_SLOW=1 exec cargo nextest run --profile slow --workspace \
    -E 'package(tests) & (test(collectors::) | test(herd::) | test(several::) | test(saves_that_are_killed) | test(save_schedules::) | test(cache_hosts::))' "$@"
