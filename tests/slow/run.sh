#!/usr/bin/env bash
# slow             the tests of crashes, faults and random sequences at length, and those of large inputs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

STORE_TESTS_SLOW=1 exec cargo nextest run --profile slow --workspace --test engine --test disk --test pool "$@"
