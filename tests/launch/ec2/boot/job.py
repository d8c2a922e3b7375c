"""Jobs whose user data, infra/ec2/boot.sh, runs for real on nodes that are namespaces of this machine."""

import json
import re
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.core.templates import fill
from launch.rehearse.nodes.ec2.node import programs
from tests import needs
from tests.launch.ec2.nodes import REGION, Node, Region, World

BUCKET, JOB, LOG_GROUP = "ddp-bucket", "job-1", "/aws-ddp-toolkit/ec2"
SETTINGS = ("--model", "cnn", "--dataset", "imagefolder", "--data-dir", "/data", "--batch-size", "16", "--no-plot",
            "--precision", "fp32", "--threads", "1", "--probe-steps", "0", "--cache-dir", "/tmp/cache")  # fmt: skip
SECRETS = ("WANDB_API_KEY=ssm:/ddp-toolkit/wandb",
           "MLFLOW_TRACKING_PASSWORD=secretsmanager:ddp-toolkit/mlflow")  # fmt: skip

needs_nodes = needs.ec2_nodes()


def user_data(*train: str, seconds: dict[str, float] | None = None, **values: Any) -> str:
    """The boot script of a job.  seconds: constants of the script that a test cannot wait for."""
    usual = {
        "JOB": JOB,
        "REGION": REGION,
        "FOLDER": f"s3://{BUCKET}/jobs/{JOB}",
        "NPROC": "1",
        "MINUTES": "90",
        "IMAGE": "123456789012.dkr.ecr.us-east-1.amazonaws.com/ddp@sha256:" + 64 * "0",
        "REGISTRY": "123456789012.dkr.ecr.us-east-1.amazonaws.com",
        "LOG_GROUP": LOG_GROUP,
        "DATA_VOLUME": "none",
        "DATA_S3": "",
        "SECRETS": [],
        "MEET_S": "900",
        "MAX_RESTARTS": "1",
        "DOCKER_FLAGS": ["--gpus", "all"],
        "WARM": "0",
        "NEXT": "",
        "SOURCE": "",
        "TOOLKIT": "",
        "PROXY": "",
        "DIRECT": "",
        "TRAIN": ["-m", "trainer", *(train or SETTINGS), "--run-dir", "/job/run"],
    }
    text = fill("ec2/boot.sh", usual | values)
    for name, value in {"PAUSE_S": 0.5, "REPLACED_S": 0, **(seconds or {})}.items():
        text, count = re.subn(rf"\b{name}=\d+", f"{name}={value}", text)
        assert count == 1
    return text


def put(here: Region, key: str, text: str) -> None:
    here.client("s3").put_object(Bucket=BUCKET, Key=f"jobs/{JOB}/{key}", Body=text.encode())


def get(here: Region, key: str) -> str:
    text: str = here.client("s3").get_object(Bucket=BUCKET, Key=f"jobs/{JOB}/{key}")["Body"].read().decode()
    return text


def keys(here: Region) -> set[str]:
    """What the job folder has."""
    listed = here.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=f"jobs/{JOB}/").get("Contents", ())
    return {entry["Key"].removeprefix(f"jobs/{JOB}/") for entry in listed}


def put_cluster(here: Region, *nodes: Node, generation: int = 1, volume: str | None = None) -> None:
    """Says that these are the nodes of the job, by rank, for the next half hour.  volume: one that is not there."""
    rows = [
        {"rank": rank, "instance": node.instance, "address": node.address,
         "data_volume": node.volume.id if node.volume else volume}
        for rank, node in enumerate(nodes)
    ]  # fmt: skip
    cluster = {"job": JOB, "generation": generation, "deadline": int(time.time()) + 1800 + 30, "nodes": rows}
    put(here, "cluster.json", json.dumps(cluster))


def record(here: Region, node: Node) -> dict[str, Any]:
    """What the node said when it left, once it is off."""
    node.wait_until_off()
    found: dict[str, Any] = json.loads(get(here, f"exits/{node.instance}.json"))
    return found


def epochs(here: Region) -> list[int]:
    return [json.loads(line)["epoch"] for line in get(here, "run/metrics.jsonl").splitlines()]


def log_of(here: Region, rank: int) -> list[str]:
    """A node's stream in CloudWatch."""
    events = here.client("logs").get_log_events(logGroupName=LOG_GROUP, logStreamName=f"{JOB}/node-{rank}")["events"]
    return [event["message"] for event in events]


def wait_for(what: Callable[[], object], *nodes: Node, timeout_s: float = 300) -> None:
    """Returns when `what` holds.  Fails, with the consoles, if it does not while the nodes are on."""
    end = time.monotonic() + timeout_s
    while not what():
        on = time.monotonic() < end and all(node.is_on for node in nodes)
        assert on, "\n".join(node.console for node in nodes)
        time.sleep(0.02)


def image_of(folder: Path, code: str) -> World:
    """A world whose `python -m trainer.torchrun` is `code`, which may use `run`, and `tries`, made before this one."""
    package = folder / "image" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "torchrun.py").write_text(
        "import signal, sys, time\nfrom pathlib import Path\nrun = Path('/job/run')\n"
        "tries = len(list(run.glob('try-*')))\n(run / f'try-{tries}').touch()\n" + textwrap.dedent(code)
    )
    return World(image=package.parent)


def docker_that(command: str, act: str) -> World:
    """A world whose docker does `act`, in the shell's words, instead of `command`."""
    usual = programs()["docker"]
    return World(programs={"docker": usual.replace("\n", f'\n[ "$1" != {command} ] || {act}\n', 1)})


def file_on(node: Node, name: str) -> Path:
    """A file of the run folder on the node's disk."""
    return node.root / "var/lib/ddp/run" / name
