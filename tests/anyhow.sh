#!/usr/bin/env bash
# Tries the tests under what users have and CI has not: the answer must not depend on it.
#   tests/anyhow.sh [CONDITION...] [-- PYTEST WORDS...]        all conditions; a few tests of each kind
# "space" and "link" try the last commit, in a clone; INSTALL=1 installs there as a user does, in minutes, and else
# the packages of this checkout are linked.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

ALL=(plain nohup background no-terminal terminal user space link theirs locale umask offline busy)
FEW=(
    tests/test_runner.py tests/test_pages.py tests/launch/core tests/launch/ec2/test_stop.py
    tests/launch/image/test_codebuild.py tests/launch/sagemaker/test_start.py tests/trainer/test_failures.py
    tests/trainer/test_run.py
)
conditions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do conditions+=("$1") && shift; done
words=("${@:2}")
[ ${#conditions[@]} -gt 0 ] || conditions=("${ALL[@]}")
[ ${#words[@]} -gt 0 ] || words=(-n auto -q "${FEW[@]}")
run=(.venv/bin/python -m pytest -p no:cacheprovider "${words[@]}")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

try_plain() { "${run[@]}"; }
try_nohup() { (trap '' HUP && "${run[@]}"); }
try_background() { (trap '' INT QUIT && "${run[@]}"); }
try_no-terminal() { setsid --wait "${run[@]}" </dev/null; }
try_terminal() { COLUMNS=40 TERM=dumb NO_COLOR=1 script -qec "stty rows 10 cols 40; ${run[*]@Q}" /dev/null; }
try_user() {
    if [ "$(id -u)" != 0 ]; then "${run[@]}"; else unshare --user --map-user=1000 --map-group=1000 "${run[@]}"; fi
}
try_space() { try_in "$place/a folder with spaces" "$place/a folder with spaces"; }
try_link() {
    mkdir "$place/real" && ln -s real "$place/link"
    try_in "$place/link/checkout" "$place/real/checkout"
}
try_theirs() {
    mkdir -p "$place/home/.aws" "$place/home/.config"
    printf '[default]\nregion = eu-west-3\n[profile work]\nrole_arn = arn:aws:iam::1:role/r\n' >"$place/home/.aws/config"
    printf '[default]\naws_access_key_id = mine\naws_secret_access_key = mine\n' >"$place/home/.aws/credentials"
    HOME=$place/home AWS_PROFILE=work AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_REGION=eu-west-3 AWS_PAGER=more \
        HTTPS_PROXY=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 PYTHONWARNINGS=error PYTHONOPTIMIZE='' \
        SLURM_JOB_ID=7 WORLD_SIZE=3 RANK=2 MPLBACKEND=none WANDB_API_KEY=mine FORCE_COLOR=1 "${run[@]}"
}
try_locale() { LANG=C LC_ALL=C "${run[@]}"; }
try_umask() { (umask 077 && "${run[@]}"); }
try_offline() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(--map-root-user)
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare "${as_root[@]}" --net sh -c 'PATH=$PATH:/usr/sbin:/sbin ip link set lo up; exec "$@"' sh "${run[@]}"
}
try_busy() { # other work takes half of the machine
    local loops=() code
    for _ in $(seq "$(nproc)"); do
        (while :; do :; done) &
        loops+=($!)
    done
    "${run[@]}"
    code=$?
    kill "${loops[@]}"
    wait "${loops[@]}" 2>/dev/null
    return $code
}

# try_in FOLDER REAL: in a clone that is made in REAL and used as FOLDER.
try_in() {
    git clone -q . "$2" || return
    if [ -n "${INSTALL:-}" ]; then
        (cd "$1" && make everything) || return
    else
        cp -al "$(readlink -f .venv)" "$2/.venv" && .venv/bin/python - "$PWD" "$1" <<'EOF' || return
"""Moves a virtual environment, as pip would have written it there: its scripts, and where this toolkit lies."""
import sys
from pathlib import Path

here, there = sys.argv[1:]
packages, scripts = next(Path(there).glob(".venv/lib/python*/site-packages")), Path(there, ".venv/bin")
for file in [*packages.glob("__editable__*"), *scripts.iterdir()]:
    if file.is_symlink() or not file.is_file() or here.encode() not in file.read_bytes()[:100_000]:
        continue
    text, mode = file.read_text().replace(here, there), file.stat().st_mode
    first, _, rest = text.partition("\n")
    if file.parent == scripts and first.startswith("#!") and " " in first and file.name not in ("aws", "jp.py"):
        text = f"#!/bin/sh\n'''exec' \"{first[2:]}\" \"$0\" \"$@\"\n' '''\n{rest}"
    file.unlink()  # the other name of the file stays as it is
    file.write_text(text)
    file.chmod(mode)
EOF
    fi
    (cd "$1" && "${run[@]}")
}

failed=()
for condition in "${conditions[@]}"; do
    declare -F "try_$condition" >/dev/null || { echo "error: no condition $condition; there are: ${ALL[*]}" >&2; exit 2; }
    echo "== $condition"
    "try_$condition" >"$place/log" 2>&1 || failed+=("$condition")
    if [[ " ${failed[*]} " == *" $condition "* ]]; then cat "$place/log"; else tail -n 1 "$place/log"; fi
done
if [ ${#failed[@]} -gt 0 ]; then echo "failed: ${failed[*]}" && exit 1; fi
