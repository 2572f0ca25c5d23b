# Virtual environments of Python for the suites; to be sourced.

# venv PLACE VERSIONS [check]: one at PLACE with exactly the packages that the file VERSIONS names, looked at by `pip check` if
# that is asked for. One that is there and complete is left alone.
venv() {
    ! cmp -s "$2" "$1/installed" || return 0
    echo "installing ${1#target/}" >&2
    rm -rf "$1"
    # The system's interpreter: jobs run as another user, who may not look into somebody's home.
    /usr/bin/python3 -m venv --without-pip "$1"
    local pip=(python3 -m pip --disable-pip-version-check --python "$1/bin/python")
    "${pip[@]}" install --quiet --no-cache-dir --no-deps --requirement "$2"
    [ $# -lt 3 ] || "${pip[@]}" "$3" >&2
    cp "$2" "$1/installed"
}
