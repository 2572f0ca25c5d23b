#!/usr/bin/env bash
# What nextest runs before the tests that need S3 servers (.config/nextest.toml): starts the servers, tells the tests
# where they are, and leaves a keeper behind that stops them when nextest ends, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash tests/servers/install.sh
room=$(mktemp -d "${TMPDIR:-/tmp}/store-servers.XXXXXX")
trap 'rm -rf "$room"' EXIT
setsid target/servers/moto/bin/python -B tests/servers/servers.py keep "$PPID" "$room/variables" moto ceph s3rver \
    </dev/null >"$room/log" 2>&1 &
keeper=$!
until [ -e "$room/variables" ]; do
    if ! kill -0 "$keeper" 2>/dev/null; then
        cat "$room/log" >&2
        exit 1
    fi
    sleep 0.1
done
cat "$room/variables" >>"$NEXTEST_ENV"
