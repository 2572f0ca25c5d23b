#!/usr/bin/env bash
# dist [check]     what is handed out: the command for old systems, a wheel, a Debian package, an image; and each is run
#
# Lands in target/dist, for the processor of this machine: the wheel store-*.whl, the package store_*.deb, the directory
# store-VERSION-PROCESSOR-linux with the command and its papers, the image's root in rootfs, archives of these two, and
# SHA256SUMS. With `check`, what lies there is only checked. Needs no root where users may make namespaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The C library of the oldest system that the command runs on: RHEL 8, Debian 10, Ubuntu 20.04.
glibc=2.28
machine=$(uname -m)
case $machine in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*)
    echo "tests/dist: nothing is handed out for $machine" >&2
    exit 2
    ;;
esac
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
dist=$PWD/target/dist
release=$dist/store-$version-$machine-linux
wheel=$dist/store-$version-py3-none-manylinux_${glibc/./_}_$machine.whl
package=$dist/store_${version}_$debian.deb
umask 022
# What is packed twice from one commit is the same twice.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

missing=()
need() { command -v "$2" >/dev/null || missing+=("$1"); }
PATH=$PATH:/usr/sbin:/sbin
need binutils readelf
need ca-certificates update-ca-certificates
need dpkg dpkg-deb
need groff-base groff
need xz-utils xz
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ "${#missing[@]}" -gt 0 ]; then
    administrator=()
    [ "$(id -u)" = 0 ] || administrator=(sudo)
    "${administrator[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

build() {
    rm -rf "$dist"/store-* "$dist"/store_* "$dist/rootfs" "$dist/SHA256SUMS"
    bash tests/dist/build.sh "$glibc" "$dist"
}

# The command as the wheel has it, manual pages, completions, licences.
papers() {
    local store=$release/store
    mkdir -p "$release"
    python3 - "$wheel" >"$store" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    (name,) = [name for name in wheel.namelist() if name.endswith(".data/scripts/store")]
    sys.stdout.buffer.write(wheel.read(name))
PYTHON
    chmod 0755 "$store"
    "$store" man "$release/share/man/man1"
    completions bash bash-completion/completions store
    completions zsh zsh/site-functions _store
    completions fish fish/vendor_completions.d store.fish
    cp README.md CHANGELOG.md "$release"
    {
        cat LICENSE
        printf '\n%s\n' "$(printf '=%.0s' {1..80})"
        python3 -B tests/dist/notices.py "$machine-unknown-linux-gnu"
    } >"$release/copyright"
    python3 -B tests/dist/wheel.py "$wheel" "$release/copyright" "$release/share"
}

# completions SHELL DIRECTORY NAME
completions() {
    mkdir -p "$release/share/$2"
    "$release/store" completions "$1" >"$release/share/$2/$3"
}

debian() {
    local root=$dist/store_$debian
    mkdir -p "$root/DEBIAN" "$root/usr/bin" "$root/usr/share/doc/store"
    cp "$release/store" "$root/usr/bin"
    cp -r "$release/share" "$root/usr"
    # Where Debian's zsh looks.
    mkdir -p "$root/usr/share/zsh/vendor-completions"
    mv "$root/usr/share/zsh/site-functions/_store" "$root/usr/share/zsh/vendor-completions"
    rmdir "$root/usr/share/zsh/site-functions"
    cp "$release/copyright" "$root/usr/share/doc/store"
    gzip -9n <CHANGELOG.md >"$root/usr/share/doc/store/changelog.gz"
    gzip -9n "$root"/usr/share/man/man1/*.1
    cat >"$root/DEBIAN/control" <<CONTROL
Package: store
Version: $version
Architecture: $debian
Maintainer: the authors of store
Section: utils
Priority: optional
Depends: libc6 (>= $glibc)
Recommends: ca-certificates
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Description: content-addressed artifact store for ML clusters
 Datasets, models and compiler caches of a training cluster in one place:
 every byte is kept once, every version stays addressable, and what a job
 needs comes out exactly as it went in. A store is a directory or a bucket.
CONTROL
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$dist/md5sums"
    mv "$dist/md5sums" "$root/DEBIAN"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >&2
    rm -rf "$root"
}

# Beside the command only what it asks for: this machine's loader, C library and certificates; and whose they are.
image() {
    local root=$dist/rootfs file
    mkdir -p "$root/usr/bin" "$root/usr/share/doc/"{store,libc6,ca-certificates} "$root/etc/ssl/certs"
    install -d -m 1777 "$root/tmp"
    cp "$release/store" "$root/usr/bin"
    cp "$release/copyright" "$root/usr/share/doc/store"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs"
    for file in libc6 ca-certificates; do
        cp "/usr/share/doc/$file/copyright" "$root/usr/share/doc/$file"
    done
    ldd "$release/store" | grep -o '/[^ ]*' | while read -r file; do
        mkdir -p "$root$(dirname "$file")"
        cp -L "$file" "$root$file"
    done
}

archives() {
    local same=(--owner=0 --group=0 --numeric-owner --sort=name "--mtime=@$SOURCE_DATE_EPOCH")
    tar -C "$dist" "${same[@]}" -cf - "$(basename "$release")" | gzip -9n >"$release.tar.gz"
    tar -C "$dist/rootfs" "${same[@]}" -cf - . | gzip -9n >"$release-rootfs.tar.gz"
    (cd "$dist" && sha256sum -- *.whl *.deb *.tar.gz >SHA256SUMS)
}

if [ "${1:-}" != check ]; then
    build
    papers
    debian
    image
    archives
fi
export glibc version dist release wheel package
# In namespaces of its own: no network but what the checks set up, and whoever runs this is root there.
inside=(unshare --mount --net --map-root-user)
"${inside[@]}" true 2>/dev/null || inside=(sudo --preserve-env env "PATH=$PATH" unshare --mount --net)
exec "${inside[@]}" bash tests/dist/check.sh
