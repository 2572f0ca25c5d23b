#!/usr/bin/env bash
# network [SEEDS]  stores in buckets over bad networks: every fault at every request, SEEDS throws of dice (100)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export STORE_TESTS_SLOW=1 STORE_TESTS_SEEDS=${1:-100}
exec cargo nextest run --profile slow --workspace --test buckets
