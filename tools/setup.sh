#!/usr/bin/env bash
# Makes .venv from requirements.lock and installs the project into it (editable). Quick when nothing changed.
# What the system lacks is installed by apt-get for root; for others one line names it and the command.
# PYTHON=/path/to/python3.x chooses the interpreter of a new .venv. --check only looks at the system.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suitable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() { # the lock is made for 3.11, so that comes first
    local name
    for name in ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}; do
        if suitable "$name"; then
            python=$(command -v "$name")
            return 0
        fi
    done
    return 1
}

find_missing() { # Debian's packages for what is not there
    missing=()
    if find_python; then
        local prefix
        prefix=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$prefix-venv")
        "$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
            missing+=("$prefix-dev")
    else
        missing+=(python3 python3-venv python3-dev)
    fi
    command -v g++ >/dev/null || missing+=(g++)
    command -v cmake >/dev/null || missing+=(cmake)
}

fail() {
    echo "set-up: $1" >&2
    exit 1
}

check_system() {
    [ -z "${PYTHON:-}" ] || suitable "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or later"
    find_missing
    [ ${#missing[@]} -gt 0 ] || return 0
    local packages="${missing[*]}"
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "missing $packages; install with: sudo apt-get update && sudo apt-get install -y $packages"
    fi
    echo "set-up: installing $packages"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    find_missing
    [ ${#missing[@]} -eq 0 ] || fail "still missing after apt-get install: ${missing[*]} (Python 3.11 or later)"
}

if [ "${1:-}" = --check ]; then
    check_system
    exit 0
fi

stamp=.venv/set-up # two lines: where and from which lock .venv was made, and which project is installed
locked="$PWD $(sha256sum <requirements.lock)"
project=$(cat pyproject.toml tools/setup.sh | sha256sum)
has() { [ -f $stamp ] && [ "$(sed -n "$1p" $stamp)" = "$2" ] && .venv/bin/python -c pass 2>/dev/null; }

if ! has 1 "$locked"; then
    check_system
    echo "set-up: making .venv with $python"
    rm -rf .venv
    "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --no-deps --require-hashes --requirement requirements.lock
    echo "$locked" >$stamp
fi
if ! has 2 "$project"; then
    echo "set-up: installing the project"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --no-deps --no-build-isolation --editable .
    printf '%s\n' "$locked" "$project" >$stamp
fi
