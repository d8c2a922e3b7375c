"""A stand-in for docker on rehearsed nodes, as far as infra/ec2/boot.sh uses it.  A program that nothing imports.

Runs a container's command with this Python and this checkout as the image: in a new mount namespace with the volumes,
in a new process namespace unless --pid host, with the environment of the image, -e and the embedded AWS, and with its
output in CloudWatch.  Refuses options that boot.sh does not use with docker's own exit code, 125.  Records every call
in /ec2/docker-calls.
"""

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

# A node of namespaces.py has its own disk; one of processes.py has a folder and shares the rest.
ROOT = Path(os.environ.get("EC2_ROOT", "/"))
IS_ALONE = "EC2_ROOT" not in os.environ
HERE = ROOT / "ec2"
CHECKOUT = Path(__file__).resolve().parents[4]
CONTAINERS = ROOT / "run/containers"
VALUES = {  # allowed values of each flag of run; None: any
    "--name": None, "--network": {"host"}, "--ipc": {"host"}, "--pid": {"host"}, "--ulimit": {"memlock=-1"},
    "--security-opt": {"no-new-privileges"}, "--log-driver": {"awslogs"}, "--log-opt": None,
    "-v": None, "-e": None, "--gpus": {"all"}, "--device": None, "--entrypoint": {"env"},
    "--user": {"10001:10001"},
}  # fmt: skip
LOG_OPTIONS = {"awslogs-region", "awslogs-group", "awslogs-stream", "mode"}
CHUNK, LONGEST_EVENT = 2**13, 200_000  # bytes; of an event CloudWatch takes 256 KiB, and 10,000 of them at once
PR_SET_CHILD_SUBREAPER = 36
# Replaces the catalog's values for the node's type on AWS: no GPUs, and a network speed in Gbit/s that namespaces on a
# busy machine can reach.
THIS_MACHINE = {"DDP_NODE_GPUS": "", "DDP_NODE_GBPS": "0.4"}


def main(words: list[str]) -> int:
    with (HERE / "docker-calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    match words:
        case ["run", *rest]:
            return run(rest)
        case ["pull", "--quiet", image]:
            return pull(image)
        case ["login", "--username", "AWS", "--password-stdin", _registry]:
            return 0 if sys.stdin.read().strip() else complain(1, "login: no password")
        case ["kill", "--signal", name, container]:
            return send(container, signal.Signals[f"SIG{name}"])
        case ["stop", "-t", seconds, container]:
            return send(container, signal.SIGTERM) or end(container, float(seconds))
        case ["rm", "--force", container]:
            return send(container, signal.SIGKILL) or end(container, 10)
    return complain(125, f"unknown command: {shlex.join(words)}")


def pull(image: str) -> int:
    """docker pull: from ECR, whose layers come from S3, or from elsewhere if the node has internet access.

    https://docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html
    """
    needed = {"ecr.dkr", "s3"} if ".dkr.ecr." in image else {"internet"}
    if "EC2_REACHES" in os.environ and not needed <= set(os.environ["EC2_REACHES"].split()):
        return complain(1, f"{image}: connection timed out")
    return 0


def complain(code: int, sentence: str) -> int:
    print(f"docker stand-in: {sentence}", file=sys.stderr)
    return code


# ---- running containers: a file for each name, with the process ID of the first process


def send(container: str, signum: int) -> int:
    try:
        os.kill(int((CONTAINERS / container).read_text()), signum)
    except (FileNotFoundError, ProcessLookupError):
        return complain(1, f"no such container: {container}")
    return 0


def end(container: str, seconds: float) -> int:
    limit = time.monotonic() + seconds
    while (CONTAINERS / container).exists():
        if time.monotonic() > limit:
            send(container, signal.SIGKILL)
            limit += 10
        time.sleep(0.05)
    return 0


# ---- docker run


def run(words: list[str]) -> int:
    if words[:1] != ["--rm"]:
        return complain(125, "run without --rm")
    options, rest, problem = parsed(words[1:])
    if problem:
        return complain(125, problem)
    if rest[1:5] == ["python", "-m", "pip", "install"]:
        return install(rest[5:], options["-v"])
    log = dict(option.split("=", 1) for option in options["--log-opt"])
    if set(log) != LOG_OPTIONS:
        return complain(125, f"unknown log options: {sorted(set(log) ^ LOG_OPTIONS)}")
    (name,), (_image, *command) = options["--name"], without_gpus(rest)
    if (CONTAINERS / name).exists():
        return complain(125, f"the name {name} is in use")
    return run_container(name, command, options, log)


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str], str]:
    """The values of each flag, the image with its command, and an error message, empty if the flags are valid."""
    options: dict[str, list[str]] = {flag: [] for flag in VALUES}
    while words and words[0].startswith("-"):
        flag, value, words = words[0], words[1], words[2:]
        allowed = VALUES.get(flag, set())
        if allowed is not None and value not in allowed:
            return options, words, f"unknown flag: {flag} {value}"
        options[flag].append(value)
    return options, words, ""


def install(words: list[str], volumes: list[str]) -> int:
    """pip in a container.  There is no package index, so this machine's packages stand in for those to install."""
    if "EC2_REACHES" in os.environ and "internet" not in os.environ["EC2_REACHES"].split():
        return complain(1, "pip: no package index can be reached")
    ((folder, _),) = (volume.split(":")[:2] for volume in volumes)
    listed = Path(folder, Path(words[words.index("-r") + 1]).name).read_text()
    return 0 if "--require-hashes" in words and "--hash=sha256:" in listed else complain(1, "pip: a hash is missing")


def without_gpus(command: list[str]) -> list[str]:
    """The training's command adapted to this machine, whose nodes only pretend to have GPUs."""
    pairs = zip(["", *command], command, strict=False)
    return ["cpu" if pair == ("--device", "cuda") else pair[1] for pair in pairs]


def run_container(name: str, command: list[str], options: dict[str, list[str]], log: dict[str, str]) -> int:
    if sys.platform == "linux":
        # Orphans become children of this process instead of the node's init, and end with the container.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    awslogs = AwsLogs(log)
    try:
        awslogs.begin()
    except Exception as error:  # as docker: without a log there is no container
        return complain(125, f"failed to initialize logging driver: {error}")
    own_pids = not options["--pid"]
    isolated = ["unshare", "--mount", *["--pid", "--fork", "--kill-child", "--mount-proc"] * own_pids] * IS_ALONE
    attach = mount if IS_ALONE else link
    script = "".join(f"{attach(volume)}\n" for volume in options["-v"]) + f'cd {ROOT / "job"} && exec "$@"'
    process = subprocess.Popen(
        [*isolated, "sh", "-euc", script, "sh", *command],
        env=image_environment() | given(options["-e"]) | THIS_MACHINE | embedded_aws(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    CONTAINERS.mkdir(exist_ok=True)
    (CONTAINERS / name).write_text(str(first_process(process.pid) if own_pids else process.pid))
    signal.signal(signal.SIGTERM, lambda *_: send(name, signal.SIGTERM))  # --sig-proxy
    reader = threading.Thread(target=awslogs.follow, args=(process.stdout,))
    reader.start()
    code = process.wait()
    kill_descendants()
    reader.join()
    (CONTAINERS / name).unlink()
    return code if code >= 0 else 128 - code


def given(words: list[str]) -> dict[str, str]:
    """The variables of -e NAME=VALUE, and of -e NAME, whose value docker takes from its own environment."""
    named = (word.partition("=") for word in words)
    return {
        name: value if equals else os.environ[name] for name, equals, value in named if equals or name in os.environ
    }


def embedded_aws() -> dict[str, str]:
    """Variables with the endpoints of the embedded AWS and the metadata service, which on EC2 are well known."""
    endpoints = {name: value for name, value in os.environ.items() if name.startswith("AWS_ENDPOINT_URL")}
    metadata = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    return endpoints | ({"AWS_METADATA_ENDPOINT": metadata} if metadata else {})  # obstore's name for it


def mount(volume: str) -> str:
    source, target, *mode = volume.split(":")
    read_only = f" && mount -o remount,bind,ro {target}" if mode == ["ro"] else ""
    return f"mkdir -p {target} && mount --bind {source} {target}{read_only}"


def link(volume: str) -> str:
    """Create a link instead of a mount, on machines where nothing can be mounted."""
    source, target, *_mode = volume.split(":")
    return f"[ {source} = {target} ] || ln -sfn {source} {target}"


def first_process(unshare: int) -> int:
    """The process ID of the first process in a new namespace: the only child of `unshare --fork`."""
    children = Path(f"/proc/{unshare}/task/{unshare}/children")
    while not children.read_text():
        time.sleep(0.01)
    return int(children.read_text())


def kill_descendants() -> None:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    while left := children.read_text().split() if children.exists() else []:  # elsewhere torchrun ends them
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def image_environment() -> dict[str, str]:
    other_image = HERE / "image"  # of a test, in place of this checkout
    return {
        "PATH": f"{HERE}/bin:/usr/bin:/bin",
        "HOME": str(ROOT / "tmp"),
        "TMPDIR": str(ROOT / "tmp"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(other_image if other_image.exists() else CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class AwsLogs:
    """docker's awslogs driver: writes the output of a container to a CloudWatch stream."""

    def __init__(self, options: dict[str, str]) -> None:
        import boto3  # slower than all other commands together

        self._client = boto3.client("logs", region_name=options["awslogs-region"])
        self._stream = {"logGroupName": options["awslogs-group"], "logStreamName": options["awslogs-stream"]}

    def begin(self) -> None:
        with suppress(self._client.exceptions.ResourceAlreadyExistsException):
            self._client.create_log_stream(**self._stream)

    def follow(self, output: IO[bytes]) -> None:
        """Send lines in batches, as docker does: a request for each of 60,000 lines would take minutes."""
        begun = b""
        while data := os.read(output.fileno(), CHUNK):
            os.write(1, data)
            *lines, begun = (begun + data).split(b"\n")
            if len(begun) > LONGEST_EVENT:
                lines, begun = [*lines, begun], b""
            self._send(lines)
        self._send([begun])

    def _send(self, lines: list[bytes]) -> None:
        now_ms = int(time.time() * 1000)
        messages = [line.decode(errors="replace") for line in lines if line]  # CloudWatch takes no empty ones
        if messages:
            events = [{"timestamp": now_ms, "message": message} for message in messages]
            self._client.put_log_events(**self._stream, logEvents=events)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
