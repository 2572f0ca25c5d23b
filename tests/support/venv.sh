# Virtual environments of Python for the suites; to be sourced.

# venv_packages: Debian's packages that environments need, installed where they are missing.
venv_packages() {
    local missing=() root=()
    /usr/bin/python3 -c 'import venv' 2>/dev/null || missing+=(python3-venv)
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || root=(sudo)
    echo "installing ${missing[*]}" >&2
    "${root[@]}" apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# venv PLACE VERSIONS [check]: one at PLACE with exactly the packages that the file VERSIONS names, looked at by `pip check` if
# that is asked for. One that is there and complete is left alone.
venv() {
    ! cmp -s "$2" "$1/installed" || return 0
    venv_packages
    echo "installing ${1#target/}" >&2
    rm -rf "$1"
    # The system's interpreter: jobs run as another user, who may not look into somebody's home.
    /usr/bin/python3 -m venv --without-pip "$1"
    local pip=(python3 -m pip --disable-pip-version-check --python "$1/bin/python")
    "${pip[@]}" install --quiet --no-cache-dir --no-deps --requirement "$2"
    [ $# -lt 3 ] || "${pip[@]}" "$3" >&2
    cp "$2" "$1/installed"
}

# suite_in_venv NAME: builds the command, and runs the suite NAME with it and with a Python that has the suite's packages.
suite_in_venv() {
    local place=target/$1
    venv "$place" "tests/$1/requirements.txt"
    cargo build --quiet -p cli
    exec python3 -B "tests/$1/suite.py" "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python"
}
