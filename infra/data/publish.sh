#!/bin/bash
# User data of the instance that publishes a data set (launch/data/on_ec2), run at boot: joins the local disks to one
# file system, installs the toolkit, runs the same `python -m launch.data publish` as a laptop would, reports its
# progress, and shuts the instance down, which terminates it.
# launch/core/templates.py fills in the values below, quoted for the shell, and removes comments.
# Start reading at main(), at the end.
# shellcheck disable=SC2329  # retry and trap call functions by name

RUN=@RUN@
REGION=@REGION@
FOLDER=@FOLDER@            # for reports and state: s3://BUCKET/data-runs/NAME
CODE=@CODE@                # the toolkit: s3://BUCKET/data-runs/NAME/code-....tar.gz
CODE_SHA256=@CODE_SHA256@
LOCK=@LOCK@                # requirements file in that archive
MINUTES=@MINUTES@          # time limit
PUBLISH=(@PUBLISH@)        # arguments of `launch.data publish`

# Dead-man timer, set before anything can fail or hang: the instance is launched to terminate on shutdown.
shutdown -h "+$MINUTES" || shutdown -h now

# On shutdown a service is stopped while the network is still up; children of cloud-init are stopped after it.
if [ -z "${DDP_SERVICE-}" ] && [ -d /run/systemd/system ]; then
    systemd-run --quiet --collect --unit ddp --setenv DDP_SERVICE=yes --setenv HOME=/root \
        -p After=network-online.target -p KillMode=mixed -p TimeoutStopSec=90 /bin/bash "$0" && exit
fi

WORK=/srv/publish        # on the local disks
ROOT=/run/ddp            # in memory
DISKS=/dev/disk/by-id
BOOT=/var/lib/cloud/scripts/per-boot
PAUSE_S=5                # between retries
REPORT_S=15              # between reports
TRANSFER_S=600           # timeout for one copy
PYTHON=python3.12

set -uo pipefail
export AWS_DEFAULT_REGION=$REGION LC_ALL=C.UTF-8 HOME=${HOME:-/root}
# By default, requests for the role's credentials time out after one second.
export AWS_METADATA_SERVICE_NUM_ATTEMPTS=10 AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=4

LOG=$ROOT/log.txt
CODE_OF_EXIT=1 STEP=script REASON='the script failed; see its log' PUBLISHER=''

say() { printf '%s %s\n' "$(date -u +%T)" "$*"; }

fail() { # CODE STEP REASON
    CODE_OF_EXIT=$1 STEP=$2 REASON=$3
    exit "$CODE_OF_EXIT"
}

# In the background, so that a signal is handled at once.
run() { "$@" & wait $!; }

retry() { # COMMAND...
    run "$@" || { run sleep "$PAUSE_S" && run "$@"; } || { run sleep "$PAUSE_S" && run "$@"; }
}

s3() { timeout --kill-after=5 "$TRANSFER_S" aws s3 "$@" --only-show-errors --cli-connect-timeout 10; }

# ---- reports

step() { # NAME
    STEP=$1
    say "step $STEP"
    report
}

# Uploads the step and the last line of the log, which may contain any bytes.
report() {
    tail -c 4000 "$LOG" | tr '\r' '\n' | python3 -c '
import json, sys, time
lines = [line.strip() for line in sys.stdin.buffer.read().decode(errors="replace").splitlines() if line.strip()]
print(json.dumps({"run": sys.argv[1], "step": sys.argv[2], "at": int(time.time()), "last": (lines or [""])[-1][:300]}))
' "$RUN" "$STEP" >"$ROOT/progress.json" && run s3 cp "$ROOT/progress.json" "$FOLDER/progress.json"
}

# Copies what another instance needs to continue the snapshot: its ID, and the blocks that are uploaded.
sync_state() { # FROM TO
    run s3 sync "$1" "$2" --exclude '*' --include snapshot.json --include 'snap-*.put'
}

save_state() { [ ! -e "$WORK/publishing/snapshot.json" ] || sync_state "$WORK/publishing" "$FOLDER/state"; }

# ---- the steps

make_disk() {
    local disks count device
    mapfile -t disks < <(find "$DISKS" -name 'nvme-Amazon_EC2_NVMe_Instance_Storage_*' ! -name '*-part*' \
        -exec readlink -f {} + | sort -u)
    count=${#disks[@]}
    [ "$count" -gt 0 ] || fail 6 disk 'this instance has no local disk'
    device=${disks[0]}
    if [ "$count" -gt 1 ]; then
        device=/dev/md0
        mdadm --create "$device" --run --level=0 --raid-devices="$count" "${disks[@]}" ||
            fail 6 disk "cannot make one disk of ${disks[*]}"
    fi
    mkdir -p "$WORK"
    { mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=1 "$device" && mount "$device" "$WORK"; } ||
        fail 6 disk "cannot make a file system on $device"
}

get_code() {
    retry s3 cp "$CODE" "$ROOT/code.tar.gz" || fail 4 code "cannot get $CODE"
    # Others may write to the bucket, but must not choose what runs here.
    echo "$CODE_SHA256  $ROOT/code.tar.gz" | sha256sum --check --status ||
        fail 4 code "$CODE does not match its digest"
    { mkdir -p "$WORK/code" && tar -xzf "$ROOT/code.tar.gz" -C "$WORK/code" --no-same-owner; } ||
        fail 6 code "cannot unpack $CODE"
}

get_programs() { retry dnf install -y -q "$PYTHON" "$PYTHON-pip" e2fsprogs mdadm || fail 6 programs 'dnf cannot install Python'; }

get_packages() {
    "$PYTHON" -m venv "$WORK/venv" || fail 6 packages 'cannot make a virtual environment'
    retry "$WORK/venv/bin/pip" install -q --disable-pip-version-check --require-hashes --only-binary :all: \
        -r "$WORK/code/$LOCK" || fail 6 packages 'cannot install the packages from PyPI'
}

publish() {
    local code
    cd "$WORK" || fail 6 publish "there is no $WORK"
    mkdir -p publishing
    sync_state "$FOLDER/state" publishing || say 'found no state of an earlier instance'
    # -u: unbuffered, because the log is reported while it runs.
    PYTHONPATH=$WORK/code "$WORK/venv/bin/python" -u -m launch.data publish "${PUBLISH[@]}" &
    PUBLISHER=$!
    while kill -0 "$PUBLISHER" 2>/dev/null; do
        timeout "$REPORT_S" tail --pid="$PUBLISHER" -s 0.2 -f /dev/null &>/dev/null & wait $!
        report
        save_state
    done
    wait "$PUBLISHER"
    code=$? PUBLISHER=''
    [ "$code" = 0 ] || fail "$code" publish "$(last_error)"
    s3 rm "$FOLDER/state" --recursive
}

# -a: also in a log with zero bytes.  cut: a command's argument may have 128 KiB at most.
last_error() {
    grep -a '^error: ' "$LOG" | tail -n 1 | tr -d '\0' | cut -b 8-4000 | grep -a . ||
        echo 'launch.data gave no reason; see the log'
}

# ---- the end, in every case

finish() {
    trap - EXIT
    trap '' TERM INT HUP PIPE
    say "step $STEP, exit code $CODE_OF_EXIT: $REASON"
    if [ -n "$PUBLISHER" ]; then
        kill "$PUBLISHER"
        timeout 30 tail --pid="$PUBLISHER" -f /dev/null
        save_state
    fi
    s3 cp "$LOG" "$FOLDER/log.txt"
    python3 -c '
import json, sys, time
run, code, step, reason = sys.argv[1:]
print(json.dumps({"run": run, "code": int(code), "step": step, "reason": reason[:500], "at": int(time.time())}))
' "$RUN" "$CODE_OF_EXIT" "$STEP" "$REASON" >"$ROOT/exit.json"
    retry s3 cp "$ROOT/exit.json" "$FOLDER/exit.json" # last: readers expect the other files to exist by then
    shutdown -h now || poweroff -f
}

main() {
    mkdir -p "$ROOT"
    exec 9>"$ROOT/lock"
    flock --nonblock 9 || exit 0 # another instance of this script is running
    exec >>"$LOG" 2>&1
    trap finish EXIT
    trap 'fail 143 "$STEP" "it was stopped, or reached its time limit"' TERM INT HUP

    # A rebooted instance does not run user data again and has no timer any more, so shut it down.
    printf '#!/bin/sh\nshutdown -h now\n' >"$BOOT/ddp" && chmod +x "$BOOT/ddp"

    step programs
    get_programs
    step disk
    make_disk
    step code
    get_code
    step packages
    get_packages
    step publish
    publish
    fail 0 publish 'done'
}

main
