#!/usr/bin/env bash
# Installs the S3 servers that the tests run against: Ceph from Debian, moto from PyPI, s3rver from npm; the last two
# into target/servers; with the word "garage" also Garage, which is built from its source (15 to 30 minutes). What is there
# and complete is left alone; with "azurite" Microsoft's stand-in for Azure, from npm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

S3RVER=3.7.1
GARAGE=2.5.0
AZURITE=3.37.0
missing=()
for pair in ceph-mon:ceph-mon ceph-osd:ceph-osd radosgw:radosgw ceph-common:ceph python3:python3 nodejs:node npm:npm; do
    command -v "${pair#*:}" >/dev/null 2>&1 || missing+=("${pair%:*}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    echo "tests/servers: installing ${missing[*]}" >&2
    "${root[@]}" apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

. tests/support/venv.sh
venv target/servers/moto tests/servers/moto.txt check

place=target/servers/s3rver
if [ "$(cat "$place/installed" 2>/dev/null)" != "$S3RVER" ]; then
    echo "tests/servers: installing s3rver" >&2
    rm -rf "$place"
    mkdir -p "$place"
    npm install --silent --no-audit --no-fund --prefix "$place" "s3rver@$S3RVER" >&2
    echo "$S3RVER" >"$place/installed"
fi

place=target/servers/garage
if [ "${1:-}" = garage ] && [ "$(cat "$place/installed" 2>/dev/null)" != "$GARAGE" ]; then
    echo "tests/servers: building garage" >&2
    rm -rf "$place"
    nice -n 15 cargo install garage --version "$GARAGE" --locked --quiet --no-default-features \
        --features bundled-libs,lmdb --root "$place" >&2
    echo "$GARAGE" >"$place/installed"
fi

place=target/servers/azurite
if [ "${1:-}" = azurite ] && [ "$(cat "$place/installed" 2>/dev/null)" != "$AZURITE" ]; then
    echo "tests/servers: installing azurite" >&2
    rm -rf "$place"
    mkdir -p "$place"
    npm install --silent --no-audit --no-fund --prefix "$place" "azurite@$AZURITE" >&2
    echo "$AZURITE" >"$place/installed"
fi
