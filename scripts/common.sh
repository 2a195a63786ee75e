# Sourced by the scripts beside it: a virtual environment that is filled once and refilled when what it holds changed.

is_new_enough() { command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Python 3.11 or newer; PYTHON overrides the choice.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        if is_new_enough "$PYTHON"; then echo "$PYTHON"; return; fi
        echo "PYTHON=$PYTHON is not Python 3.11 or newer." >&2
        return 2
    fi
    for name in python3 python3.13 python3.12 python3.11; do
        if is_new_enough "$name"; then echo "$name"; return; fi
    done
    echo "unisono needs Python 3.11 or newer, found: $(python3 --version 2>&1)." >&2
    echo "HINT: install it (Debian 12, Ubuntu 24.04: apt-get install python3), or set PYTHON=/path/to/python3.11" >&2
    return 2
}

# Installs Debian packages where we may; otherwise says what is missing and goes on.
system_packages() {
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 ||
            { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q --no-install-recommends "$@" >/dev/null; }
    else
        echo "HINT: these system packages are wanted: $* (sudo apt-get install $*)" >&2
        return 1
    fi
}

# make_venv DIR PIP-ARGUMENTS...: idempotent; at once if nothing changed since the last time.
make_venv() {
    dir=$1
    shift
    python=$(find_python) || return 2
    want="$PWD $("$python" -VV) $* $(cat pyproject.toml constraints.txt)"
    if [ -x "$dir/bin/python" ] && [ "$(cat "$dir/.unisono" 2>/dev/null)" = "$want" ]; then return; fi
    if [ -e "$dir" ] && [ ! -e "$dir/.unisono" ]; then
        echo "$PWD/$dir exists and was not made by this script: it is left alone." >&2
        echo "HINT: move it away, or install into it yourself: $dir/bin/pip install $*" >&2
        return 2
    fi
    if [ ! -w . ]; then
        echo "$PWD cannot be written to, and $dir must be made there. HINT: use a copy of your own" >&2
        return 2
    fi
    echo "Filling $dir (once) ..." >&2
    rm -rf "$dir"
    # Debian splits venv off from Python.
    "$python" -m venv "$dir" >/dev/null 2>&1 || {
        rm -rf "$dir"
        system_packages python3-venv && "$python" -m venv "$dir"
    } || return 2
    echo unfinished >"$dir/.unisono"
    trap 'exit 130' INT
    for attempt in 1 2 3; do  # a registry may fail for a moment
        if "$dir/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt "$@"; then
            printf '%s' "$want" >"$dir/.unisono"
            trap - INT
            return
        fi
        echo "pip failed (attempt $attempt of 3)" >&2
    done
    return 1
}
