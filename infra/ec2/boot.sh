#!/bin/bash
# User data of a node of launch.ec2, run at boot: finds the node's rank in the job, gets the data and the image, trains,
# uploads the results, and shuts the node down, which terminates it.
# launch/core/templates.py fills in the values below, quoted for the shell, and removes comments.
# Start reading at main(), at the end.
# shellcheck disable=SC2329  # within, retry and trap call functions by name

JOB=@JOB@
REGION=@REGION@
FOLDER=@FOLDER@            # the job folder: s3://BUCKET/jobs/NAME
NPROC=@NPROC@              # processes on this node
MINUTES=@MINUTES@          # time limit of this node
IMAGE=@IMAGE@
REGISTRY=@REGISTRY@        # to log in to; empty for none
LOG_GROUP=@LOG_GROUP@
DATA_VOLUME=@DATA_VOLUME@  # per-node, multi-attach, none, cache
DATA_S3=@DATA_S3@          # to copy to this node; empty for none
SECRETS=(@SECRETS@)        # NAME=ssm:PARAMETER, NAME=secretsmanager:SECRET: environment variables
MEET_S=@MEET_S@            # how long nodes may be unable to connect to each other
MAX_RESTARTS=@MAX_RESTARTS@
DOCKER_FLAGS=(@DOCKER_FLAGS@)
WARM=@WARM@                # minutes that this node waits for the next job
NEXT=@NEXT@                # name of that job's boot script in the job folder; empty: do not wait
SOURCE=@SOURCE@            # S3 URI of a script's source; empty for none
TOOLKIT=@TOOLKIT@          # S3 URI of the trainer, for an image without it; empty for none
TRAIN=(@TRAIN@)            # command of each rank
PROXY=@PROXY@              # empty for none
DIRECT=@DIRECT@            # hosts that need no proxy

# Dead-man timer, set before anything can fail or hang: instances are launched to terminate on shutdown.
shutdown -h "+$MINUTES" || shutdown -h now

# On shutdown a service is stopped while the network is still up; children of cloud-init are stopped after it.
if [ -z "${DDP_SERVICE-}" ] && [ -d /run/systemd/system ]; then
    systemd-run --quiet --collect --unit ddp --setenv DDP_SERVICE=yes --setenv HOME=/root \
        -p After=docker.service -p After=network-online.target -p KillMode=mixed -p TimeoutStopSec=150 \
        /bin/bash "$0" && exit
fi

DISK=/var/lib/ddp
RUN=$DISK/run           # the run folder, mirrored to the job folder
STAGE=$DISK/stage       # the files being uploaded
WORK=$DISK/source       # a script's source and its packages
KIT=$DISK/toolkit       # the trainer, and the packages that the image lacks
LOG=$DISK/boot.log
ROOT=/run/ddp           # in memory, as the disk may get full
FOLLOWER=$DISK.next     # the next job's boot script
UPLOADED=$ROOT/uploaded # list of the files in RUN that are in the job folder
OUTPUT=$ROOT/output.log # of the container

PAUSE_S=5           # between polls and retries
LISTEN_S=1          # between polls for files of the launcher
UPLOAD_EVERY_S=60   # at most this much training is lost with the node
REPLACED_S=30       # how long a restart waits for a new cluster.json
OUTPUT_MOST=50000000 # bytes of the container's output to keep
# Timeouts
METADATA_S=120      # for the instance metadata service
CLUSTER_S=900       # for the launcher to write cluster.json
VOLUME_S=300        # for the data volume to be attached
AMI_S=60            # for the AMI to mount the local disks
TRANSFER_S=900      # for one copy of the run folder
PULL_S=1800         # for one attempt to pull the image
COPY_S=3600         # for one attempt to copy the data

set -uo pipefail
export AWS_DEFAULT_REGION=$REGION LC_ALL=C.UTF-8
# Where AMIs install the AWS CLI; a service's PATH may lack these folders.
export PATH=$PATH:/usr/local/bin:/snap/bin
# By default, requests for the role's credentials time out after one second.
export AWS_METADATA_SERVICE_NUM_ATTEMPTS=3 AWS_RETRY_MODE=standard AWS_MAX_ATTEMPTS=4

INSTANCE=$HOSTNAME # until the metadata service has answered
HELD=()            # secrets as NAME=VALUE
RANK='' GENERATION='' CONTAINER='' UPLOAD=''
PROXIES=()         # docker flags for the proxy variables
CODE=1 STEP=script REASON='the boot script failed; see its log' RESTARTS=0 STAYS=''

say() { printf '%s %s\n' "$(date -u +%T)" "$*"; }

fail() { # CODE STEP REASON
    CODE=$1 STEP=$2 REASON=$3
    exit "$CODE"
}

# Seconds since boot, from a monotonic clock.
now() { cut -d. -f1 /proc/uptime; }

# Runs a command in the background, so that signals are handled at once rather than when it ends.
run() { "$@" & wait $!; }

nap() { sleep "$1" &>/dev/null & wait $!; }

nap_beside() { timeout "$1" tail --pid="$2" -s 0.2 -f /dev/null &>/dev/null & wait $!; } # SECONDS PID

within() { # SECONDS COMMAND...: repeat until it succeeds
    local end=$(($(now) + $1))
    shift
    until run "$@"; do
        [ "$(now)" -lt "$end" ] || return 1
        nap "$PAUSE_S"
    done
}

retry() { # COMMAND...
    run "$@" || { nap "$PAUSE_S" && run "$@"; } || { nap "$PAUSE_S" && run "$@"; }
}

# Reports this node's step to the launcher as the name of an empty file, so that one listing shows all nodes.
mark() { # STEP
    say "step $1"
    : | s3 cp - "$FOLDER/boot/$INSTANCE.$1" &
}

s3() { timeout --kill-after=5 "$TRANSFER_S" aws s3 "$@" --only-show-errors --cli-connect-timeout 10; }

# Sets the proxy for this script, containers and the services that call AWS: docker's daemon pulls images and sends logs.
use_proxy() {
    export {http,https}_proxy="$PROXY" {HTTP,HTTPS}_PROXY="$PROXY" {no_proxy,NO_PROXY}="$DIRECT"
    PROXIES=(-e http_proxy -e https_proxy -e no_proxy -e HTTP_PROXY -e HTTPS_PROXY -e NO_PROXY)
    test -d /run/systemd/system || return 0
    systemctl import-environment {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY
    systemctl try-restart docker {,snap.amazon-ssm-agent.}amazon-ssm-agent # which one depends on the AMI
}

# ---- identity

imds() { # PATH: instance metadata by IMDSv2, with a new token per request, so that it cannot expire
    local at=http://169.254.169.254/latest token
    token=$(curl -sf -m 2 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $at/api/token) &&
        curl -sf -m 2 -H "X-aws-ec2-metadata-token: $token" "$at/meta-data/$1"
}

fetch_instance() { imds instance-id >"$ROOT/instance"; }

# Prints this node's entry in cluster.json on one line; fails if there is none.
place() {
    python3 - "$INSTANCE" "$ROOT/cluster.json" <<'EOF'
import json, sys
cluster = json.load(open(sys.argv[2]))
nodes = {node["rank"]: node for node in cluster["nodes"]}
me = [node for node in nodes.values() if node["instance"] == sys.argv[1]]
if not me:
    sys.exit(1)
print(me[0]["rank"], me[0]["address"], me[0]["data_volume"] or "none", len(nodes), nodes[0]["address"],
      cluster["generation"], int(cluster["deadline"]))
EOF
}

fetch_cluster() { s3 cp "$FOLDER/cluster.json" "$ROOT/cluster.json" 2>"$ROOT/cluster.error"; }

fetch_place() { fetch_cluster && place >/dev/null; }

take_place() {
    read -r RANK ADDRESS VOLUME NODES HEAD GENERATION DEADLINE < <(place) ||
        fail 21 cluster "$INSTANCE is not in cluster.json any more: it was replaced"
    read -r _ INTERFACE _ < <(ip -o -4 address show to "$ADDRESS") ||
        fail 21 cluster "no network interface has $ADDRESS, this node's address in cluster.json"
    say "node $RANK of $NODES, generation $GENERATION: $ADDRESS on $INTERFACE, $HEAD is the head"
    # Only shorten the time limit: a wrong clock or file must not extend the life of the node.
    local left=$(((DEADLINE - $(date +%s)) / 60)) most=$((MINUTES - ($(now) - BORN) / 60))
    [ "$left" -lt "$most" ] || left=$most
    shutdown -h "+$((left > 1 ? left : 1))"
}

# ---- data and image

get_data() {
    mkdir -p /data
    if [ "$DATA_VOLUME" = cache ]; then
        mount_local_disk
        chmod 1777 /data # writable for any user of the image
    elif [ "$DATA_VOLUME" != none ]; then
        local device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${VOLUME/-/}
        ! is_mounted || return 0
        within "$VOLUME_S" test -e "$device" || fail 22 data "volume $VOLUME was not attached within $VOLUME_S s"
        mount_volume "$device" || fail 22 data "volume $VOLUME cannot be mounted"
    elif [ -n "$DATA_S3" ]; then
        mount_local_disk
        TRANSFER_S=$COPY_S retry s3 sync --delete "$DATA_S3" /data || fail 22 data "cannot copy $DATA_S3"
    fi
}

# Whether the previous job on this warm node has mounted the same data.
is_mounted() { [ "${DDP_WARM-}" = "$DATA_VOLUME $DATA_S3" ]; }

# Mounts the file system on DEVICE, or on its first partition that has one, without replaying the journal: that would
# write to a volume that others read.  nouuid: XFS refuses a second file system with the same UUID.
mount_volume() { # DEVICE
    local part kind=''
    for part in "$1" "$1"-part*; do
        kind=$(blkid -o value -s TYPE "$part") && [ -n "$kind" ] && break
    done
    case $kind in
        xfs) mount -o ro,norecovery,nouuid "$part" /data ;;
        ext*) mount -o ro,noload "$part" /data ;;
        '') mount -o ro,noload "$1" /data ;;
        *) mount -o ro "$part" /data ;;
    esac
}

mount_local_disk() {
    ! is_mounted || return 0
    local disks disk ami=/opt/dlami/nvme
    # sort -u: a disk has several names in this folder.
    mapfile -t disks < <(find /dev/disk/by-id -name 'nvme-Amazon_EC2_NVMe_Instance_Storage_*' ! -name '*-part*' \
        -exec readlink -f {} + | sort -u)
    disk=${disks[0]-}
    # The Deep Learning AMI mounts the disks itself, maybe after this script has started.
    if [ -n "$disk" ] && test -e /opt/dlami && within "$AMI_S" mountpoint -q $ami; then
        mount --bind $ami /data && return
    fi
    [ ${#disks[@]} -lt 2 ] || ! mdadm --create /dev/md/ddp --run --level 0 --raid-devices ${#disks[@]} "${disks[@]}" ||
        disk=/dev/md/ddp
    [ -n "$disk" ] && mkfs.ext4 -q -F "$disk" && mount "$disk" /data && return
    say 'no local disk: using the root volume'
}

# The password must come from the registry's region: ACCOUNT.dkr.ecr.REGION.amazonaws.com
log_in() {
    local region=$REGION
    case $REGISTRY in *.dkr.ecr.*) region=$(cut -d. -f4 <<<"$REGISTRY") ;; esac
    aws ecr get-login-password --region "$region" |
        docker login --username AWS --password-stdin "$REGISTRY"
}

# The AMI has SOCI's parallel pull, but only for containerd with nerdctl, and docker does not see those images; without
# docker there is no log driver for CloudWatch.  The root volume's throughput speeds up unpacking instead.
# https://github.com/awslabs/soci-snapshotter/blob/main/docs/parallel-mode.md
get_image() {
    [ -z "${DDP_WARM-}" ] || return 0 # pulled by the previous job
    [ -z "$REGISTRY" ] || retry log_in || fail 23 login "cannot log in to $REGISTRY"
    retry timeout "$PULL_S" docker pull --quiet "$IMAGE" || fail 24 image "cannot pull $IMAGE"
}

# The training checks the digest, because others may write to the bucket.
get_source() {
    mkdir -p "$WORK" && chmod 1777 "$WORK" # for any user of the image
    [ -z "$SOURCE" ] || retry s3 cp "$SOURCE" "$WORK/source.tar.gz" || fail 28 source "cannot copy $SOURCE"
}

unpack() { s3 cp "$1" - | tar -xz -C "$2" --no-same-owner; } # ARCHIVE FOLDER

# Installs the trainer and the packages that the image lacks, from PyPI by hash, once per node.
get_toolkit() {
    [ -n "$TOOLKIT" ] || return 0
    mkdir -p "$KIT"
    retry unpack "$TOOLKIT" "$KIT" || fail 28 source "cannot unpack $TOOLKIT"
    retry timeout "$PULL_S" docker run --rm --network host "${PROXIES[@]}" -v "$KIT:/job/toolkit" --entrypoint env "$IMAGE" \
        python -m pip install --quiet --no-deps --require-hashes --only-binary :all: --target /job/toolkit \
        -r /job/toolkit/packages.txt || fail 24 image "cannot install the packages that $IMAGE lacks"
    # Not as root, like the toolkit's own image.  No entry point, as AWS's would evaluate the command a second time.
    DOCKER_FLAGS+=(-v "$KIT:/job/toolkit:ro" -e PYTHONPATH=/job/toolkit --entrypoint env
        --user 10001:10001 -e HOME=/tmp -e USER=ddp -e PYTHONNOUSERSITE=1)
}

# ---- secrets

secret() { # REFERENCE: prints its value, or nothing if it is binary
    case $1 in
        ssm:*) timeout 60 aws ssm get-parameter --with-decryption --name "${1#*:}" --query Parameter.Value --output text ;;
        *) timeout 60 aws secretsmanager get-secret-value --secret-id "${1#*:}" \
            --query '[SecretString][?@]' --output text ;;
    esac
}

get_secrets() {
    local word value
    for word in "${SECRETS[@]}"; do
        value=$(retry secret "${word#*=}") || fail 27 secret "cannot read ${word#*=} for ${word%%=*}"
        [ -n "$value" ] ||
            fail 27 secret "--secret ${word%%=*}: ${word#*=} is binary; store it as text."
        HELD+=("${word%%=*}=$value")
        DOCKER_FLAGS+=(-e "${word%%=*}") # without the value, which docker reads from its environment
    done
}

# ---- the run folder

# Prints time, size and name of each file, except hidden ones, which are still being written.
list_files() { (cd "$RUN" && find . -type f ! -name '.*' -printf '%T@ %s %P\n' | sort); }

names() { cut -d' ' -f3- "$@" | sort; }

restore() {
    rm -f "$UPLOADED" # upload nothing until everything is restored
    # The copy would fail on a pipe, a socket or a broken link.
    find "$RUN" ! -type f ! -type d -delete
    # --exact-timestamps: otherwise an old file of the same size would be kept.
    # chmod: any user of the image must be able to write these files.
    s3 sync --exact-timestamps "$FOLDER/run" "$RUN" && chmod -R a+rwX "$RUN" && list_files >"$UPLOADED"
}

# Uploads only files that changed on this node: the nodes without rank 0 have outdated copies of the others.
upload_changes() {
    [ -e "$UPLOADED" ] || return 0
    list_files >"$UPLOADED.new" || return 1 # else files missing in it would be removed
    rm -rf "$STAGE" && mkdir "$STAGE" || return 1
    # Hard links, because the training may remove files during the upload.
    comm -13 "$UPLOADED" "$UPLOADED.new" | names >"$UPLOADED.changed" &&
        (cd "$RUN" && xargs -r -d '\n' cp --link --parents -t "$STAGE" -- <"$UPLOADED.changed") &&
        { [ -z "$(ls -A "$STAGE")" ] || s3 cp --recursive "$STAGE" "$FOLDER/run"; } &&
        remove_files < <(comm -23 <(names "$UPLOADED") <(names "$UPLOADED.new")) &&
        mv "$UPLOADED.new" "$UPLOADED"
    local code=$?
    rm -rf "$STAGE" # frees the space of removed checkpoints
    return $code
}

remove_files() { # removes the files named on stdin from the job folder, in one call
    local name only=()
    while IFS= read -r name; do
        # Escape wildcards: a file named * would match all files.
        name=${name//[/[[]} name=${name//\*/[*]}
        only+=("--include=${name//\?/[?]}")
    done
    [ ${#only[@]} = 0 ] || s3 rm "$FOLDER/run" --recursive --exclude '*' "${only[@]}"
}

finish_upload() {
    [ -z "$UPLOAD" ] || wait "$UPLOAD" # an older upload must not end after a newer one
    UPLOAD=''
    retry upload_changes
}

# ---- training

# Prints the numbers of the Xid errors in the kernel log of NVIDIA's driver, which a container cannot read.
xids() {
    dmesg | sed -n 's/.*NVRM: Xid ([^)]*): \([0-9][0-9]*\).*/\1/p' | sort -u | tr '\n' ' '
}

# Prints how often the job was restarted: on this node, or with replaced nodes, whichever is more.
restarted() {
    echo $((RESTARTS >= GENERATION ? RESTARTS : GENERATION - 1))
}

start_container() { # SECONDS: timeout to connect to the other nodes
    # --pid host: torchrun identifies a node by address and process id, which is 1 in every container, so a restarted
    # container would look like the one that died.  Also, process 1 ignores a SIGTERM before it has a handler.
    # TORCH_DISABLE_SHARE_RDZV_TCP_STORE: with a shared store torchrun cannot replace a lost node.
    # non-blocking: the training must not wait for CloudWatch.
    : >"$OUTPUT"
    {
        # Exported only here, so that no other program gets the secrets and no command line shows them.
        [ ${#HELD[@]} = 0 ] || export "${HELD[@]}"
        exec docker run --rm --name ddp --network host --ipc host --pid host --ulimit memlock=-1 \
            --security-opt no-new-privileges \
            --log-driver awslogs --log-opt awslogs-region="$REGION" --log-opt awslogs-group="$LOG_GROUP" \
            --log-opt awslogs-stream="$JOB/node-$RANK" --log-opt mode=non-blocking \
            -e AWS_REGION="$REGION" -e AWS_DEFAULT_REGION="$REGION" \
            "${PROXIES[@]}" "${DOCKER_FLAGS[@]}" -v /data:/data:ro -v "$RUN:/job/run" -v "$WORK:/job/source" \
            -e TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 -e DDP_NODE_XIDS="$(xids)" -e DDP_RESTARTS="$(restarted)" \
            -e GLOO_SOCKET_IFNAME="$INTERFACE" -e NCCL_SOCKET_IFNAME="=$INTERFACE" \
            "$IMAGE" python -m trainer.torchrun --nnodes "$NODES" --nproc-per-node "$NPROC" \
            --rdzv-backend c10d --rdzv-endpoint "$HEAD:29400" --rdzv-id "$JOB" \
            --rdzv-conf "join_timeout=$1,is_host=$((RANK == 0))" --local-addr "$ADDRESS" --max-restarts 0 \
            "${TRAIN[@]}"
    } >>"$OUTPUT" 2>&1 & # >>: appends after trim_output has shortened it
    CONTAINER=$!
}

# Waits for the container; uploads regularly, and makes the training save when EC2 is about to reclaim the node.
attend_container() {
    local uploaded asked=''
    uploaded=$(now)
    while kill -0 "$CONTAINER" 2>/dev/null; do
        trim_output
        # Only once: a second SIGTERM would end torchrun before its workers.
        [ -n "$asked" ] || ! spot_notice || ! docker kill --signal TERM ddp &>/dev/null || asked=yes
        if [ $(($(now) - uploaded)) -ge "$UPLOAD_EVERY_S" ] && ! kill -0 "${UPLOAD:-none}" 2>/dev/null; then
            upload_changes &
            UPLOAD=$! uploaded=$(now)
            # A user's script may wait for a lost node as long as its library does, so interrupt it.
            [ -n "$asked" ] || ! is_replaced || ! docker kill --signal TERM ddp &>/dev/null || asked=yes
        fi
        nap_beside "$PAUSE_S" "$CONTAINER"
    done
    wait "$CONTAINER"
}

spot_notice() { imds spot/instance-action >/dev/null; }

# Prints the training's last error, which has no secrets, or docker's if no training started.
last_error() {
    # -a: also in output with zero bytes.  cut: a command's argument may have 128 KiB at most.
    { grep -a '^error: ' "$OUTPUT" || case ${code-} in
        125 | 126 | 127) grep -a '^docker: ' "$OUTPUT" || grep -a . "$OUTPUT" ;;
    esac; } | tail -n 1 | tr -d '\0' | sed -E 's/^(error|docker): //' | cut -b -4000 | grep -a . ||
        echo 'the training gave no reason'
}

# Shortens the output, which is kept in memory.
trim_output() {
    [ "$(stat -c %s "$OUTPUT")" -lt "$OUTPUT_MOST" ] ||
        { tail -c 100000 "$OUTPUT" >"$OUTPUT.end"; cat "$OUTPUT.end" >"$OUTPUT"; } # not &&: also if memory is full
}

# Trains until done, with up to MAX_RESTARTS restarts after attempts that end because a node was lost.  Attempts whose
# nodes never connected do not count, as the launcher may still be replacing a node; after MEET_S without training this
# node gives up.
train() {
    local code trained left unsaved='' most=$MEET_S
    [ -z "$DATA_S3" ] || most=$((MEET_S * 4)) # a new node copies the data first
    trained=$(now)
    while :; do
        docker rm --force ddp &>/dev/null # so that nothing of the last attempt still writes files
        # Do not overwrite files that could not be uploaded yet; the next upload includes them.
        [ -n "$unsaved" ] || retry restore || fail 25 restore "cannot copy $FOLDER/run"
        ! spot_notice || fail 75 spot 'EC2 is reclaiming this spot instance'
        left=$((most - ($(now) - trained)))
        [ "$left" -gt 0 ] || fail 6 train "the nodes could not connect within $most s: $(last_error)"
        start_container "$left"
        attend_container
        code=$? CONTAINER=''
        say "the training ended with exit code $code"
        [ "$code" != 0 ] || trap '' TERM INT HUP # done, even if the node is being reclaimed
        trim_output
        [ "$code" = 0 ] || tail -c 10000 "$OUTPUT" | tail -n 20 # lines may be endless, and the console is slow
        unsaved=''
        finish_upload || { unsaved=yes && say 'some results could not be uploaded'; }
        case $code in
            0) STAYS=$NEXT && return ;;
            8) fail 8 health "$(last_error)" ;;
            6 | 75 | 134 | 137 | 139 | 143) ;; # trainer/contract.py, and 128 + a signal
            125) fail 125 train "$(last_error)" ;; # docker's own error
            *) STAYS=$NEXT && fail "$code" train "$(last_error)" ;; # the training's own error
        esac
        ! spot_notice || fail 75 spot 'EC2 is reclaiming this spot instance'
        if ! grep -q 'the workers could not meet' "$OUTPUT"; then
            [ "$RESTARTS" -lt "$MAX_RESTARTS" ] || fail "$code" train "no restarts left: $(last_error)"
            RESTARTS=$((RESTARTS + 1)) trained=$(now)
        fi
        within "$REPLACED_S" is_replaced
        take_place
    done
}

is_replaced() { fetch_cluster && place | (read -r _ _ _ _ _ generation _ && [ "$generation" -gt "$GENERATION" ]); }

# ---- the end, in every case

finish() {
    trap - EXIT
    trap '' TERM INT HUP PIPE
    say "step $STEP, exit code $CODE: $REASON"
    if [ -n "$CONTAINER" ]; then
        docker stop -t 60 ddp
        wait "$CONTAINER"
    fi
    if ! finish_upload && STAYS='' && [ "$CODE" = 0 ]; then
        CODE=26 STEP=upload REASON='trained to the end, but some results could not be uploaded'
    fi
    exec >&3 2>&1 # closes tee's input, so that tee completes the log
    timeout 5 tail --pid="$TEE" -f /dev/null
    s3 cp "$LOG" "$FOLDER/boot/$INSTANCE.log"
    write_record >"$ROOT/exit.json"
    # Last: readers expect the other files to exist by then.
    s3 cp "$ROOT/exit.json" "$FOLDER/exits/$INSTANCE.json" || STAYS=''
    [ -z "$STAYS" ] || stay_warm
    shutdown -h now || poweroff -f
}

write_record() {
    python3 - "$INSTANCE" "$STEP" "$REASON" "$RANK" "$GENERATION" "$CODE" "$RESTARTS" "${STAYS:+$WARM}" <<'EOF'
import json, sys, time
record = dict(zip(("instance", "step", "reason"), sys.argv[1:4]))
record.update((name, int(text) if text else None) for name, text in
              zip(("rank", "generation", "code", "restarts"), sys.argv[4:8]))
warm = {"warm_until": int(time.time() + 60 * int(sys.argv[8]))} if sys.argv[8] else {}
print(json.dumps({**record, "at": int(time.time()), **warm}))
EOF
}

fetch_next() { ! spot_notice && s3 cp "$FOLDER/$NEXT" "$FOLLOWER" 2>/dev/null; }

# Waits for the boot script of the next job and executes it; returns if none comes in time, or on any failure.  Removes
# all files of this job first.  The next script sets its own timer.
stay_warm() {
    shutdown -h "+$WARM" || return # in case this loop hangs
    trap - TERM INT HUP PIPE # the next script could not trap signals that are ignored here
    PAUSE_S=$LISTEN_S within $((WARM * 60)) fetch_next && rm -rf "$DISK" "$ROOT" || return
    find /dev/shm -mindepth 1 -delete # containers share it
    DDP_WARM="$DATA_VOLUME $DATA_S3" exec bash "$FOLLOWER"
}

main() {
    mkdir -p "$RUN" "$ROOT"
    exec 9>"$ROOT/lock"
    flock --nonblock 9 || exit 0 # another instance of this script is running
    # Also to the console, which EC2 shows even if the node has no network.  A service's output would go to the journal.
    exec 3>&1 > >(trap '' TERM INT HUP && exec tee -a "$LOG" ${DDP_SERVICE:+/dev/console}) 2>&1
    TEE=$!
    BORN=$(now)
    trap finish EXIT
    trap 'fail 143 signal "the node was stopped"' TERM INT HUP

    # A rebooted node does not run user data again and has no timer any more, so shut it down.
    printf '#!/bin/sh\nshutdown -h now\n' >/var/lib/cloud/scripts/per-boot/ddp &&
        chmod +x /var/lib/cloud/scripts/per-boot/ddp

    [ -z "$PROXY" ] || use_proxy
    within "$METADATA_S" fetch_instance || fail 20 metadata 'the instance metadata service does not answer'
    INSTANCE=$(<"$ROOT/instance")
    mark started
    PAUSE_S=$LISTEN_S within "$CLUSTER_S" fetch_place || fail 21 cluster \
        "no cluster.json in $FOLDER named $INSTANCE within $CLUSTER_S s; $(tail -n 1 "$ROOT/cluster.error")"
    take_place
    mark data
    get_data
    mark image
    get_image
    get_source
    get_toolkit
    get_secrets
    mark train
    train
    fail 0 train 'done'
}

main
