#!/bin/sh
# Sets up a machine for `make`:
#   setup.sh venv EXTRAS   a virtual environment in .venv with weft, editable, and these extras
#   setup.sh system        the programs that tests use: of the virtual cluster, Slurm, PostgreSQL and weft serve
#   setup.sh browser       a browser, for the tests of web pages
# Where it may not install a system package it says exactly what to install.
set -eu

python=${PYTHON:-python3}

# install PACKAGE...: with apt when we are root; otherwise tell, and return 1.
install() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $*" >&2
        # The machine itself may be installing; so may another call of this script, and an update waits for no other.
        flock -o "$0" apt-get -o DPkg::Lock::Timeout=300 update -qq
        DEBIAN_FRONTEND=noninteractive flock -o "$0" apt-get -o DPkg::Lock::Timeout=300 install -y -qq \
            --no-install-recommends "$@" >/dev/null
    else
        echo "setup: please install: $*" >&2
        echo "setup:     sudo apt-get install --no-install-recommends $*" >&2
        return 1
    fi
}

make_venv() {
    if ! command -v "$python" >/dev/null; then
        install python3 python3-venv || exit 2
    fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "setup: Python must be 3.11 or newer, got $("$python" --version 2>&1); use make PYTHON=python3.12" >&2
        exit 2
    fi
    if [ ! -x .venv/bin/pip ]; then
        "$python" -c 'import ensurepip' 2>/dev/null || install python3-venv || exit 2
        "$python" -m venv .venv
    fi
    install_packages "$1"
    install_packages ./distributions/weft-horovod  # its dependency is weft, which is there now
    # Only what is imported, and on all cores: not the tests of each library, nor every model of transformers.
    .venv/bin/python -m compileall -qq -j 0 -x '/tests?/|/transformers/models/|/node_modules/' \
        .venv/lib/python*/site-packages src testing ||
        true  # templates do not compile
}

# install_packages EXTRAS: by uv, which takes a fifth of pip's time; by pip where uv cannot.
install_packages() {
    if [ -x .venv/bin/uv ] || .venv/bin/pip install --quiet --disable-pip-version-check uv; then
        with_uv "$1" && return
        echo "setup: uv could not install the packages; once more with pip" >&2
    fi
    .venv/bin/pip install --quiet --disable-pip-version-check --no-compile --editable "$1"
}

# with_uv EXTRAS: uv does not read how pip is configured, so it is told.
with_uv() {
    pip_config=$(.venv/bin/pip config list)
    index=$(configured index-url)
    more=$(configured extra-index-url)
    links=$(configured find-links | tr ' ' ',')
    certificates=${SSL_CERT_FILE:-$(configured cert)}
    env ${index:+"UV_DEFAULT_INDEX=$index"} ${more:+"UV_EXTRA_INDEX_URL=$more"} ${links:+"UV_FIND_LINKS=$links"} \
        ${certificates:+"SSL_CERT_FILE=$certificates"} UV_INDEX_STRATEGY=unsafe-best-match UV_LINK_MODE=copy \
        .venv/bin/uv pip install --quiet --python .venv/bin/python --editable "$1"
}

# configured NAME: an option of pip by its environment or its files; several values with spaces in between.
configured() {
    printf '%s\n' "$pip_config" | sed -n "s/^[a-z:]*\.$1='\(.*\)'\$/\1/p" | sed 's/\\n/ /g; s/^ *//' | head -n 1
}

install_system() {
    missing=
    command -v ip >/dev/null && command -v tc >/dev/null || missing="$missing iproute2"
    command -v ssh >/dev/null || missing="$missing openssh-client"
    [ -x /usr/sbin/sshd ] || missing="$missing openssh-server"
    command -v unshare >/dev/null || missing="$missing util-linux"
    command -v nft >/dev/null || [ -x /usr/sbin/nft ] || missing="$missing nftables"
    [ -x /usr/sbin/slurmctld ] && [ -x /usr/sbin/slurmd ] || missing="$missing slurm-wlm"
    [ -x /usr/sbin/munged ] || missing="$missing munge"
    ls -d /usr/lib/postgresql/*/bin >/dev/null 2>&1 || missing="$missing postgresql"
    command -v curl >/dev/null || missing="$missing curl"
    command -v openssl >/dev/null || missing="$missing openssl"
    # shellcheck disable=SC2086  # the list is meant to be split
    [ -z "$missing" ] || install $missing || echo "setup: without them the tests that need them are skipped" >&2
}

install_browser() {
    for browser in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$browser" >/dev/null && return
    done
    # The shell is smaller than the browser, and takes a third of its time for a page.
    install chromium-headless-shell || install chromium ||
        echo "setup: without it the tests of the page are skipped" >&2
}

case ${1:-} in
    venv) make_venv "$2" ;;
    system) install_system ;;
    browser) install_browser ;;
    *) echo "setup: usage: setup.sh venv EXTRAS | setup.sh system | setup.sh browser" >&2; exit 2 ;;
esac
