#!/bin/sh
# Builds the image for the CPU where no registry of base images is in reach, and tries it out: as root on Debian, with
# debootstrap and buildah. Its base is this Debian with its own Python, so its locks are made for that one. Ten minutes.
#
#   sh containers/trial.sh FOLDER      a folder with 10 GB to spare; uv must be installed
#
# TORCH_INDEX is where torch for the CPU comes from, WHEELS a folder of wheels that are in no index.
set -eu

work=$(realpath "${1:?usage: trial.sh FOLDER}")
root=$(cd "$(dirname "$0")/.." && pwd)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
# shellcheck source=/dev/null
. /etc/os-release
python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
base=docker.io/library/python:$python-slim

if [ ! -d "$work/base" ]; then
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$VERSION_CODENAME" "$work/base"
    ln -s /usr/bin/python3 "$work/base/usr/local/bin/python"
    # As this machine trusts its package indexes.
    cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n%s\n' "${WHEELS:+find-links = $WHEELS}" \
        >"$work/base/etc/pip.conf"
    echo "cafile=/etc/ssl/certs/ca-certificates.crt" >"$work/base/root/.npmrc"
    container=$(buildah from scratch)
    buildah add -q "$container" "$work/base" /
    buildah config --cmd '["python"]' "$container"
    buildah commit -q "$container" "$base"
    buildah rm "$container" >/dev/null
fi

rm -rf "$work/tree"
mkdir "$work/tree"
git -C "$root" archive HEAD | tar -x -C "$work/tree"
sed -i "s/^PYTHON, PLATFORM = \"[0-9.]*\"/PYTHON, PLATFORM = \"$python\"/" "$work/tree/containers/lock.py"
/usr/bin/python3 "$work/tree/containers/lock.py"

buildah build --format docker --pull-never --layers=false --build-arg "PYTHON=$python" \
    --build-arg "TORCH_INDEX=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" ${WHEELS:+--volume "$WHEELS:$WHEELS:ro"} \
    -f containers/Containerfile -t weft "$work/tree"

container=$(buildah from --pull-never localhost/weft)
buildah run --user 1000:1000 "$container" -- sh -euc '
    echo "import os, torch; print(\"rank\", os.environ[\"RANK\"], torch.ones(2).sum().item())" >/workspace/train.py
    weft run -n 2 train.py
    weft up --host 127.0.0.1 --data /data --insecure >/tmp/up.txt &
    until python -c "import urllib.request; urllib.request.urlopen(\"http://127.0.0.1:8765/api/v1/health\")" 2>/dev/null
    do kill -0 $!; sleep 1; done
    kill $!
    ! pip --version 2>/dev/null || ! pip show -q hatchling 2>/dev/null
    ! touch /opt/weft/x 2>/dev/null'
buildah rm "$container" >/dev/null
buildah images localhost/weft
