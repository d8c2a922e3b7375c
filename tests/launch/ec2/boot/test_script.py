"""The boot script itself, and those of its functions that need no node."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.ec2.boot.job import user_data


def test_the_script_is_clean_for_shellcheck(tmp_path: Path) -> None:
    rendered = tmp_path / "boot.sh"
    rendered.write_text(user_data())

    # within, retry and trap call functions by name.
    command = [Path(sys.executable).parent / "shellcheck", "--exclude", "SC2329", rendered]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_first_command_is_the_dead_man_timer() -> None:
    lines = [line for line in user_data().splitlines() if line and not line.startswith("#")]

    first = next(line for line in lines if not re.match(r"[A-Z0-9_]+=", line))

    assert first == 'shutdown -h "+$MINUTES" || shutdown -h now'


def run_function(name: str, call: str, **stubs: str) -> str:
    """What `call` of one of the script's functions prints, with these programs replaced by shell code."""
    (function,) = re.findall(rf"^{name}\(\) {{.*?^}}", user_data(), re.DOTALL | re.MULTILINE)
    others = "\n".join(f"{program}() {{ {code}; }}" for program, code in stubs.items())
    run = subprocess.run(["bash", "-c", f"{others}\n{function}\n{call}"], capture_output=True, text=True, check=False)
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("blkid", "mounted"),
    [
        ("echo ext4", "-o ro,noload /dev/vol /data"),
        ("echo xfs", "-o ro,norecovery,nouuid /dev/vol /data"),
        ("echo vfat", "-o ro /dev/vol /data"),
        ("case $5 in *-part*) echo xfs ;; *) echo ;; esac", "-o ro,norecovery,nouuid /dev/vol-part* /data"),
        ("return 2", "-o ro,noload /dev/vol /data"),
    ],
    ids=["ext4", "xfs", "other", "partition", "unknown"],
)
def test_a_volume_is_mounted_by_what_is_on_it_without_writing_to_it(blkid: str, mounted: str) -> None:
    """man 8 mount: noload is ext4's word; XFS takes norecovery, and nouuid where the same file system is mounted
    twice.  A disk with partitions has no file system of its own.
    """
    assert run_function("mount_volume", "mount_volume /dev/vol", blkid=blkid, mount='echo "$@"') == mounted


DISK = "/dev/nvme1n1"
RAID = "mdadm --create /dev/md/ddp --run --level 0 --raid-devices 2 /dev/nvme1n1 /dev/nvme2n1"


@pytest.mark.parametrize(
    ("disks", "ami", "stubs", "does"),
    [
        ([DISK], "true", {}, ["within 60 mountpoint -q /opt/dlami/nvme", "mount --bind /opt/dlami/nvme /data"]),
        ([DISK], "true", {"within": "false"}, [f"mkfs.ext4 -q -F {DISK}", f"mount {DISK} /data"]),
        ([DISK, DISK], "false", {}, [f"mkfs.ext4 -q -F {DISK}", f"mount {DISK} /data"]),
        ([DISK, "/dev/nvme2n1"], "false", {}, [RAID, "mkfs.ext4 -q -F /dev/md/ddp", "mount /dev/md/ddp /data"]),
        ([DISK, "/dev/nvme2n1"], "false", {"mdadm": "false"}, [f"mkfs.ext4 -q -F {DISK}", f"mount {DISK} /data"]),
        ([], "true", {}, ["no local disk: using the root volume"]),
        ([DISK], "false", {"mount": "false"}, [f"mkfs.ext4 -q -F {DISK}", "no local disk: using the root volume"]),
    ],
    ids=["the AMI mounts it", "the AMI does not", "two names", "several", "no mdadm", "none", "one that fails"],
)  # fmt: skip
def test_what_is_copied_or_kept_goes_to_the_local_disks_where_the_type_has_some(
    disks: list[str], ami: str, stubs: dict[str, str], does: list[str]
) -> None:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/nvme-ebs-volumes.html has the names of instance store
    volumes; Deep Learning AMIs mount them: https://docs.aws.amazon.com/dlami/latest/devguide/gs.html, and RAID 0 is
    made with mdadm: https://docs.aws.amazon.com/ebs/latest/userguide/raid-config.html.
    """
    usual = {"test": ami, "find": f"printf '%s\\n' {' '.join(disks)}" if disks else ":",
             "within": 'echo within "$@"', "mdadm": 'echo mdadm "$@"', "mount": 'echo mount "$@"',
             "mkfs.ext4": 'echo mkfs.ext4 "$@"', "say": 'echo "$@"'}  # fmt: skip
    call = "AMI_S=60; mount_local_disk"
    assert run_function("mount_local_disk", call, **(usual | stubs)).splitlines() == does


@pytest.mark.parametrize(
    ("volume", "s3", "does"),
    [
        ("cache", "", ["mkdir -p /data", "disk", "chmod 1777 /data"]),
        ("none", "s3://bucket/data", ["mkdir -p /data", "disk", "3600 s: s3 sync --delete s3://bucket/data /data"]),
        ("none", "", ["mkdir -p /data"]),
    ],
)
def test_data_that_come_from_s3_come_to_the_local_disk(volume: str, s3: str, does: list[str]) -> None:
    """Shards that the training reads are kept there, and folders are copied there before it begins."""
    stubs = {"mkdir": 'echo mkdir "$@"', "mount_local_disk": "echo disk", "chmod": 'echo chmod "$@"',
             "retry": 'echo "$TRANSFER_S s: $*"'}  # fmt: skip
    said = run_function("get_data", f"DATA_VOLUME={volume} DATA_S3={s3} COPY_S=3600; get_data", **stubs)
    assert said.splitlines() == does


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (125, "docker: Error response from daemon: could not select device driver\n\nRun 'docker run --help'\n",
         "Error response from daemon: could not select device driver"),
        (127, "exec: python: not found\n", "exec: python: not found"),
        # A script of the user's own may end with these codes, and our last line about it hides tokens, and no other.
        *((code, "error: it ended\n  Traceback\nhttps://u:pa55w@host\n", "it ended") for code in (125, 126, 127)),
        (5, "error: the loss is not finite\nbye\n", "the loss is not finite"),
        (1, "Traceback\n", "the training gave no reason"),
        # Any training may print a zero byte, or a line that is longer than a program's argument may be.
        (5, "loading\0\nerror: the loss\0 is not finite\n", "the loss is not finite"),
        (5, f"error: {'x' * 200_000}\n", "x" * 4000),
    ],
)  # fmt: skip
def test_dockers_own_failure_is_quoted(code: int, said: str, words: str, tmp_path: Path) -> None:
    """https://docs.docker.com/engine/containers/run/#exit-status: 125 to 127 are docker's own; its help follows."""
    (tmp_path / "out").write_text(said)
    assert run_function("last_error", f"OUTPUT={tmp_path}/out code={code}; last_error") == words


def test_what_a_training_prints_does_not_fill_the_memory(tmp_path: Path) -> None:
    """The record of how a node ended lies there, too: a node without one is replaced by another, which is billed."""
    output = tmp_path / "out"
    for size, left in ((99_999_999, 100_000), (40_000_000, 40_000_000)):
        with output.open("wb") as file:
            file.truncate(size)
            file.seek(0, os.SEEK_END)
            file.write(b"\nerror: the loss is not finite\n")
        run_function("trim_output", f"OUTPUT={output} OUTPUT_MOST=50000000; trim_output")
        assert left <= output.stat().st_size < left + 100
        assert output.read_bytes()[-100:].endswith(b"\nerror: the loss is not finite\n")


def test_the_boot_script_reads_xid_errors_as_kernels_log_them(tmp_path: Path) -> None:
    """The forms of drivers old and new: with PCI: and without, with a process and without."""
    lines = """
[  269.516977] NVRM: GPU at 0000:01:00.0 has fallen off the bus.
[  269.517039] NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000
[   71.514022] NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.
[   72.514022] NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu
[   73.514022] NVRM: Xid (PCI:0000:2b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
"""
    (tmp_path / "kernel").write_text(lines)
    assert run_function("xids", "xids", dmesg=f"cat {tmp_path}/kernel").split() == ["31", "63", "79"]


def test_no_program_in_the_container_gets_more_rights_than_its_user_has() -> None:
    """https://docs.docker.com/reference/cli/docker/container/run/#security-opt: not by setuid, either."""
    (started,) = re.findall(r"exec docker run (.*?)>\"\$OUTPUT\"", user_data(), re.DOTALL)
    assert "--security-opt no-new-privileges" in started
    assert not re.search(r"--privileged|--cap-add|docker\.sock|--user|-v /:|seccomp", started)
    assert re.findall(r'-v "?(\S+?)"? ', started) == ["/data:/data:ro", "$RUN:/job/run", "$WORK:/job/source"]


def test_programs_in_the_container_have_a_region() -> None:
    """https://docs.aws.amazon.com/sdkref/latest/guide/feature-region.html: boto3 reads one, other SDKs the other."""
    (started,) = re.findall(r"exec docker run (.*?)>\"\$OUTPUT\"", user_data(), re.DOTALL)
    given = re.findall(r'-e (AWS_\w+="\S+")', started)
    assert given == ['AWS_REGION="$REGION"', 'AWS_DEFAULT_REGION="$REGION"']


def test_a_proxys_variables_reach_the_script_containers_and_services() -> None:
    """https://docs.docker.com/engine/daemon/proxy/: docker's daemon, which pulls the image, takes them from systemd, as
    does Session Manager's agent:
    https://docs.aws.amazon.com/systems-manager/latest/userguide/configure-proxy-ssm-agent.html
    """
    call = "PROXY=http://proxy:3128 DIRECT=169.254.169.254; use_proxy; env | grep -i _proxy=; "
    call += "printf '%s ' \"${PROXIES[@]}\""
    *services, flags = (lines := run_function("use_proxy", call, test=":", systemctl='echo "$@"').splitlines())
    names = ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]
    assert flags == " ".join(f"-e {name}" for name in names)
    assert services[:2] == [
        f"import-environment {' '.join(names)}",
        "try-restart docker amazon-ssm-agent snap.amazon-ssm-agent.amazon-ssm-agent",
    ]
    assert {"HTTPS_PROXY=http://proxy:3128", "no_proxy=169.254.169.254"} < set(lines)
    for started in re.findall(r"docker run .*?\$IMAGE", user_data(), re.DOTALL):
        assert '"${PROXIES[@]}"' in started


@pytest.mark.parametrize(
    ("registry", "region"),
    [
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com", "us-east-1"),
        ("123456789012.dkr.ecr.eu-west-3.amazonaws.com", "eu-west-3"),
        ("10.77.0.1:5001", "us-west-2"),  # no region of its own
    ],
)
def test_the_password_is_of_the_registrys_region(registry: str, region: str) -> None:
    """Another region's registry takes no other: https://docs.aws.amazon.com/cli/latest/reference/ecr/get-login-password.html"""
    said = run_function("log_in", f"REGION=us-west-2 REGISTRY={registry}; log_in", aws='echo "$@"', docker="cat")
    assert said == f"ecr get-login-password --region {region}"


NAMES = r"^(?:restore|upload_changes|remove_files)\(\) \{.*?^\}|^(?:list_files|names)\(\)[^\n]*"


def on_a_run_folder(tmp_path: Path, *lines: str, s3: str) -> subprocess.CompletedProcess[str]:
    """These lines, where the script's functions have a run folder, and `s3` in place of AWS's command."""
    script = [
        f"RUN={tmp_path}/run STAGE={tmp_path}/stage UPLOADED={tmp_path}/uploaded FOLDER=s3://b/jobs/j",
        f"s3() {{ {s3}; }}",
        *re.findall(NAMES, user_data(), re.DOTALL | re.MULTILINE),
        *lines,
    ]
    (tmp_path / "run").mkdir(exist_ok=True)
    return subprocess.run(["bash", "-c", "\n".join(script)], capture_output=True, text=True, check=False)


def test_a_name_in_the_run_folder_is_no_pattern(tmp_path: Path) -> None:
    """https://docs.aws.amazon.com/cli/latest/reference/s3/cp.html: --include takes patterns."""
    file = f"'{tmp_path}/run/img[1]*?.png'"
    ended = on_a_run_folder(
        tmp_path, "restore", f"touch {file}", "upload_changes", f"rm {file}", "upload_changes", s3='echo "$@"'
    )
    assert ended.stdout.splitlines()[-2:] == [
        f"cp --recursive {tmp_path}/stage s3://b/jobs/j/run",
        "rm s3://b/jobs/j/run --recursive --exclude * --include=img[[]1][*][?].png",
    ]


def test_only_changed_files_are_uploaded_under_their_own_names(tmp_path: Path) -> None:
    """A file that is being written has a hidden name, and comes with the next upload."""
    copies = 'case $1 in cp) (cd "$3" && find . -type f) | sort ;; esac'
    made = ["restore", "mkdir -p $RUN/a/b; echo 1 >$RUN/old; echo 2 >$RUN/a/b/-n; echo 3 >$RUN/a/.part"]
    ended = on_a_run_folder(
        tmp_path, *made, "upload_changes; echo $?", 'echo 4 >"$RUN/a/x y"', "upload_changes", s3=copies
    )
    assert ended.stdout.splitlines() == ["./a/b/-n", "./old", "0", "./a/x y"]


def test_neither_a_pipe_nor_a_socket_that_a_training_left_keeps_it_from_going_on(tmp_path: Path) -> None:
    """With one where it copies to, `aws s3 sync` ends with 2, and the node would give up.

    https://docs.aws.amazon.com/cli/latest/userguide/cli-usage-returncodes.html: files were skipped
    """
    left = ["mkdir $RUN/sub; mkfifo $RUN/sub/pipe; touch $RUN/sub/kept; cd $RUN",
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"]  # fmt: skip
    sync = '[ -z "$(find "$RUN" -type p -o -type s)" ] || return 2'
    ended = on_a_run_folder(tmp_path, *left, "restore || echo gave up", s3=sync)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["sub", "kept"]


@pytest.mark.parametrize(
    ("generation", "restarts", "expected"), [(1, 0, 0), (1, 2, 2), (2, 0, 1), (2, 1, 1), (2, 3, 3)]
)
def test_a_scripts_restarts_include_those_on_the_same_nodes(generation: int, restarts: int, expected: int) -> None:
    assert run_function("restarted", f"GENERATION={generation} RESTARTS={restarts}; restarted") == str(expected)
    assert '-e DDP_RESTARTS="$(restarted)"' in user_data()
