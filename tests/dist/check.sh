#!/usr/bin/env bash
# Each thing in target/dist does the main job where it is meant to run. Called by run.sh, in namespaces.
set -euo pipefail
bytes_max=20000000
# What every system with glibc has.
everywhere='lib(c|dl|m|pthread|rt)\.so\.[0-9]|ld-linux-[a-z0-9_-]+\.so\.[0-9]'
PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "tests/dist: $*" >&2
    exit 1
}

same() { cmp -- "$release/store" "$1" || fail "$1 is not the command that was built"; }

# What the command asks of a system.
binary() {
    local store=$release/store bytes newest needed
    bytes=$(stat -c %s "$store")
    [ "$bytes" -lt "$bytes_max" ] || fail "the command has $bytes bytes, at most $((bytes_max - 1))"
    newest=$(readelf --wide --version-info "$store" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 || true)
    newest=${newest#GLIBC_}
    [ -n "$newest" ] || fail "the command names no version of glibc"
    [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -1)" = "$glibc" ] ||
        fail "the command asks for glibc $newest, newer than $glibc"
    needed=$(readelf --wide --dynamic "$store" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    ! grep -vxE "$everywhere" <<<"$needed" || fail "the command asks for libraries that are not everywhere"
    ! readelf --wide --sections "$store" | grep -E '\.(symtab|debug_)' || fail "the command is not stripped"
    ! grep -aoFm 1 -e "${CARGO_HOME:-$HOME/.cargo}/registry" -e "$PWD/store/src" "$store" ||
        fail "the command names paths of this machine"
    mkdir "$work/archive"
    tar -C "$work/archive" --no-same-owner -xzf "$release.tar.gz"
    same "$work/archive/${release##*/}/store"
    [ "$("$store" --version)" = "store $version" ] || fail "the command is not version $version"
    echo "command: $bytes bytes, glibc $newest, $(xargs <<<"$needed")"
}

# In a root with nothing else: no shell, no /proc, no /dev.
image() {
    local root=$work/root strange
    local own='\./(usr/bin/store|etc/ssl/certs/ca-certificates\.crt|usr/share/doc/[a-z0-9-]+/copyright)'
    mkdir "$root"
    tar -C "$root" --no-same-owner -xzf "$release-rootfs.tar.gz"
    diff -r "$dist/rootfs" "$root" || fail "the image's archive is not its directory"
    same "$root/usr/bin/store"
    strange=$(cd "$root" && find . ! -type d | grep -vxE "$own|\./lib(64)?/([a-z0-9_-]+/)?($everywhere)" || true)
    [ -z "$strange" ] || fail "the image holds $strange"
    mkdir "$root/work"
    bash tests/dist/job.sh "$root/work" /work chroot "$root" /usr/bin/store
    echo "image: $(du -sb "$dist/rootfs" | cut -f1) bytes; the main job in an empty root"
}

# A bucket's name is resolved and its certificate checked with what the image has.
https() {
    local root=$work/root tls=$work/tls server status=0 told
    local key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    mkdir "$tls"
    {
        openssl req -x509 "${key[@]}" -days 2 -subj /CN=authority -keyout "$tls/authority.key" -out "$tls/authority"
        openssl req "${key[@]}" -subj /CN=bucket.test -keyout "$tls/key" -out "$tls/request"
        openssl x509 -req -in "$tls/request" -CA "$tls/authority" -CAkey "$tls/authority.key" -set_serial 1 -days 2 \
            -extfile <(echo subjectAltName=DNS:bucket.test) -out "$tls/certificate"
    } 2>"$tls/log" || fail "$(cat "$tls/log")"
    ip link set lo up
    exec {server}< <(exec python3 -B tests/dist/endpoint.py bucket.test "$tls/certificate" "$tls/key")
    trap "kill $!; rm -rf '$work'" EXIT
    read -r -u "$server" || fail "the endpoint does not start"
    echo 'nameserver 127.0.0.1' >"$root/etc/resolv.conf"

    # Nobody vouches for the certificate.
    told=$(ask bucket.test) || status=$?
    [ "$status" = 1 ] && grep -q 'invalid peer certificate' <<<"$told" || fail "without its authority: $status, $told"
    # The authority stands where the image keeps those that it trusts.
    cat "$tls/authority" >>"$root/etc/ssl/certs/ca-certificates.crt"
    status=0
    told=$(ask bucket.test) || status=$?
    [ "$status" = 3 ] && grep -q 'there is no store' <<<"$told" || fail "with its authority: $status, $told"
    echo "image: a bucket's name and certificate"
}

# ask HOST: what `info` says of an empty bucket there.
ask() {
    AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_REGION=here AWS_ENDPOINT_URL=https://$1 \
        chroot "$work/root" /usr/bin/store --deadline 5s --store s3://bucket/store info 2>&1
}

# from BIN DIRECTORY: the main job with the command that PATH finds in BIN.
from() {
    local found
    found=$(PATH=$1:$PATH command -v store) || fail "$1: no \`store\` on PATH"
    [ "$found" = "$1/store" ] || fail "PATH leads to $found, not to $1"
    same "$found"
    mkdir "$2"
    PATH=$1:$PATH bash tests/dist/job.sh "$2" "$2" store
}

wheel() {
    local environment=$work/environment
    python3 -m venv "$environment"
    "$environment/bin/python" -m pip --disable-pip-version-check install --quiet --no-index "$wheel"
    "$environment/bin/python" -m pip --disable-pip-version-check show --files store >"$work/shown"
    grep -q "^Version: $version\$" "$work/shown" || fail "the wheel is not version $version"
    ! grep -rF "$PWD" "$environment"/lib/python*/site-packages/store-*.dist-info --exclude=direct_url.json \
        --exclude=RECORD >"$work/named" || fail "the wheel names paths of this machine: $(cut -c 1-200 "$work/named")"
    papers "$environment/share" store.1 zsh/site-functions
    from "$environment/bin" "$work/wheel"
    "$environment/bin/python" -m pip --disable-pip-version-check uninstall --quiet --yes store
    [ ! -e "$environment/bin/store" ] && [ ! -e "$environment/share/man/man1/store.1" ] ||
        fail "pip leaves something behind"
    echo "wheel: $(stat -c %s "$wheel") bytes; the main job from a fresh environment"
}

package() {
    local root=$work/package
    dpkg-deb -x "$package" "$root"
    dpkg-deb -e "$package" "$work/control"
    (cd "$root" && md5sum --quiet --check --strict "$work/control/md5sums") || fail "md5sums are not those of the files"
    [ "$(dpkg-deb -f "$package" Version)" = "$version" ] || fail "the package is not version $version"
    papers "$root/usr/share" store.1.gz zsh/vendor-completions
    grep -q zstd "$root/usr/share/doc/store/copyright" || fail "the package does not say whose zstd is"
    from "$root/usr/bin" "$work/package-job"
    echo "package: $(stat -c %s "$package") bytes; the main job from it"
}

# papers SHARE PAGE ZSH: each verb has a page that can be formatted, and shells know the verbs.
papers() {
    local verb page
    for verb in '' $("$release/store" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/-\1/p'); do
        page=$1/man/man1/${2/store/store$verb}
        [ -s "$page" ] || fail "there is no $page"
        ! gzip -cdf "$page" | groff -man -ww -Tutf8 2>&1 >/dev/null | grep . || fail "$page is malformed"
    done
    bash -c 'source "$1" && complete -p store' complete "$1/bash-completion/completions/store" >/dev/null ||
        fail "bash does not take the completions"
    # Their scripts ask the command what may follow.
    asks "$1/$3/_store" zsh
    asks "$1/fish/vendor_completions.d/store.fish" fish
}

# asks SCRIPT SHELL: the completions of the shell ask the command, which knows the verbs.
asks() {
    grep -q "STORE_COMPLETE=\"\{0,1\}$2" "$1" || fail "$2's completions do not ask the command"
    STORE_COMPLETE=$2 _CLAP_COMPLETE_INDEX=1 _CLAP_IFS=$'\n' "$release/store" -- store mat >"$work/known" 2>&1
    grep -q '^materialize' "$work/known" || fail "$2's completions know no verbs: $(cat "$work/known")"
}

binary
image
https
wheel
package
(cd "$dist" && sha256sum --quiet --check --strict SHA256SUMS) || fail "SHA256SUMS are not those of the files"
