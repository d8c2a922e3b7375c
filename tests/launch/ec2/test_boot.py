"""infra/ec2/boot.sh, run as user data by nodes that are namespaces of this machine."""

import dataclasses
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from launch.core.templates import fill
from launch.rehearse.nodes.ec2.namespaces import fill_disk
from launch.rehearse.nodes.ec2.node import programs
from tests import needs
from tests.conftest import ROOT
from tests.launch.ec2.nodes import REGION, Node, Region, Volume, World, held, left_of, region, text_of

BUCKET, JOB, LOG_GROUP = "ddp-bucket", "job-1", "/aws-ddp-toolkit/ec2"
RUN = f"jobs/{JOB}/run/"
SETTINGS = ("--model", "cnn", "--dataset", "imagefolder", "--data-dir", "/data", "--batch-size", "16", "--no-plot",
            "--precision", "fp32", "--threads", "1", "--probe-steps", "0", "--cache-dir", "/tmp/cache")  # fmt: skip
SECRETS = ("WANDB_API_KEY=ssm:/ddp-toolkit/wandb",
           "MLFLOW_TRACKING_PASSWORD=secretsmanager:ddp-toolkit/mlflow")  # fmt: skip
LONG = ("--epochs", "60")  # long enough for something to happen meanwhile

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
        "MAX_RESTARTS": "1",
        "DOCKER_FLAGS": ["--gpus", "all"],
        "TRAIN": train or SETTINGS,
    }
    text = fill("ec2/boot.sh", usual | values)
    for name, value in {"PAUSE_S": 0.5, "REPLACED_S": 0, **(seconds or {})}.items():
        text, count = re.subn(rf"\b{name}=\d+", f"{name}={value}", text)
        assert count == 1
    return text


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Region]:
    """A region with a bucket and a log group in it."""
    with region(tmp_path / "region") as made:
        made.client("s3").create_bucket(Bucket=BUCKET)
        made.client("logs").create_log_group(logGroupName=LOG_GROUP)
        yield made


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Volume:
    """A volume with scans of handwritten zeros and ones, as PNG files of 16 pixels a side."""
    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    for digit in (0, 1):
        for index, pixels in enumerate(data.images[data.target == digit][:60]):
            file = folder / "data" / ("val" if index % 5 == 0 else "train") / str(digit) / f"{index:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15).astype("uint8")).resize((16, 16)).convert("RGB").save(file)
    return Volume.of(folder / "data", "vol-0123456789abcdef0", folder / "volume.img")


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


def has_saved(node: Node) -> bool:
    """Whether a checkpoint is on the node's disk."""
    return any(file_on(node, "checkpoints").glob("epoch-*.pt.sha256"))


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


# ---- the script itself


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


def test_the_script_fits_into_user_data_with_every_setting_given() -> None:
    every = [word for number in range(60) for word in (f"--some-setting-{number}", "with a value")]

    assert len(user_data(*every).encode()) < 15_360  # a KiB is left for what a later version needs


# ---- trainings


@needs_nodes
def test_two_nodes_train_from_the_volume_and_leave_results_logs_and_records(here: Region, digits: Volume) -> None:
    script = user_data(*SETTINGS, "--epochs", "2", DATA_VOLUME="multi-attach")
    nodes = [here.launch(script, volume=digits) for _ in range(2)]
    put_cluster(here, *nodes)

    records = [record(here, node) for node in nodes]

    for rank, (node, left) in enumerate(zip(nodes, records, strict=True)):
        assert left.pop("at") == pytest.approx(time.time(), abs=600)
        assert left == {"instance": node.instance, "rank": rank, "generation": 1, "code": 0, "step": "train",
                        "reason": "done", "restarts": 0}  # fmt: skip
        assert node.shutdowns == ["-h +90", "-h +30", "-h now"]
        assert f"node {rank} of 2, generation 1" in get(here, f"boot/{node.instance}.log")
    assert epochs(here) == [1, 2]
    assert {"run/model.pt", "run/config.yaml", "run/checkpoints/best.pt"} <= keys(here)
    assert [key for key in keys(here) if "/." in key] == []
    logs = [log_of(here, rank) for rank in range(2)]
    assert sum("[METRIC]" in line for log in logs for line in log) == 2
    assert any("on imagefolder: 96 training and 24 evaluation images" in line for log in logs for line in log)


@needs_nodes
@pytest.mark.slow("after a spot notice a node saves, and the job resumes with another node")
def test_after_a_spot_notice_the_job_goes_on_with_another_node(here: Region, digits: Volume) -> None:
    script = user_data(*SETTINGS, *LONG, DATA_VOLUME="per-node", seconds={"REPLACED_S": 60})
    first, taken = (here.launch(script, volume=digits) for _ in range(2))
    put_cluster(here, first, taken)
    wait_for(lambda: has_saved(first) or has_saved(taken), first, taken)

    assert taken.imds is not None
    taken.imds.give_spot_notice()
    left = record(here, taken)
    replacement = here.launch(script, volume=digits)
    put_cluster(here, first, replacement, generation=2)

    assert (left["code"], left["step"], left["rank"]) == (75, "spot", 1)
    went_on = record(here, first)
    assert (went_on["code"], went_on["generation"], went_on["restarts"]) == (0, 2, 1)
    assert record(here, replacement)["code"] == 0
    assert epochs(here) == list(range(1, 61))
    assert any(line.startswith("resuming at epoch") for rank in (0, 1) for line in log_of(here, rank))


@needs_nodes
@pytest.mark.slow("a node whose worker is killed resumes from its checkpoint")
def test_a_node_whose_worker_is_killed_goes_on_from_its_checkpoint(here: Region, digits: Volume) -> None:
    node = here.launch(user_data(*SETTINGS, *LONG, DATA_VOLUME="per-node"), volume=digits)
    put_cluster(here, node)
    wait_for(lambda: has_saved(node), node)

    # Not by their order: process numbers begin again at 32,768.
    (worker,) = {*node.processes("-m", "trainer", "--epochs")} - {*node.processes("trainer.torchrun")}
    os.kill(worker, signal.SIGKILL)

    left = record(here, node)
    assert (left["code"], left["restarts"]) == (0, 1)
    assert epochs(here) == list(range(1, 61))
    assert "was killed by SIGKILL" in get(here, f"boot/{node.instance}.log")


# ---- what goes wrong


FAILURES = [
    pytest.param(20, "metadata", "does not answer", {"METADATA_S": 1}, {}, World(has_metadata=False), id="metadata"),
    pytest.param(22, "data", "vol-0gone was not attached", {"VOLUME_S": 1}, {"DATA_VOLUME": "per-node"}, World(),
                 id="volume"),
    pytest.param(22, "data", "cannot copy s3://nobodys", {}, {"DATA_S3": "s3://nobodys/data"}, World(), id="data"),
    pytest.param(23, "login", "cannot log in to 1234", {}, {}, docker_that("login", "exit 1"), id="login"),
    pytest.param(24, "image", "cannot pull 1234", {}, {}, docker_that("pull", "exit 1"), id="pull"),
    pytest.param(125, "train", "gave no reason", {}, {"DOCKER_FLAGS": ["--gpus", "none"]}, World(), id="docker"),
    pytest.param(2, "train", "did you mean 'cnn'?", {}, {"TRAIN": ["--model", "cnm"]}, World(), id="settings"),
]  # fmt: skip


@needs_nodes
@pytest.mark.parametrize(("code", "step", "words", "seconds", "values", "world"), FAILURES)
def test_a_node_that_fails_says_where_and_turns_itself_off(
    code: int, step: str, words: str, seconds: dict[str, float], values: dict[str, Any], world: World, here: Region
) -> None:
    node = here.launch(user_data(seconds=seconds, **values), world=world)
    put_cluster(here, node, volume="vol-0gone")

    node.wait_until_off()

    left = json.loads((node.root / "run/ddp/exit.json").read_text())
    assert (left["code"], left["step"], left["restarts"]) == (code, step, 0)
    assert words in left["reason"]
    assert node.shutdowns[-1] == "-h now"
    if world.has_metadata:  # without them it has no name, and no right to write
        assert json.loads(get(here, f"exits/{node.instance}.json")) == left
        assert words in get(here, f"boot/{node.instance}.log")


@needs_nodes
def test_a_full_disk_ends_the_job_and_what_was_uploaded_stays(here: Region, tmp_path: Path) -> None:
    """The lists of what is uploaded must be whole, though the disk is not: what they lack is removed from S3."""
    code = """
        import os
        (run / "kept.pt").write_bytes(bytes(100_000))
        print("has begun", flush=True)
        while os.statvfs(run).f_bfree:
            time.sleep(0.05)
        time.sleep(3)  # some copies are due meanwhile
        print("error: the disk is full.", file=sys.stderr)
        sys.exit(7)
    """
    world = dataclasses.replace(image_of(tmp_path, code), has_own_disk=True)
    node = here.launch(user_data(seconds={"UPLOAD_EVERY_S": 1}), world=world)
    put_cluster(here, node)
    wait_for(lambda: "run/kept.pt" in keys(here), node)

    fill_disk(node.machine)

    left = record(here, node)
    assert (left["code"], left["step"], left["restarts"]) == (7, "train", 0)
    assert left["reason"] == "the disk is full."
    assert {"run/kept.pt", "run/try-0"} <= keys(here)
    assert len(get(here, "run/kept.pt")) == 100_000


@needs_nodes
def test_a_secret_reaches_the_training_and_nothing_else(here: Region, tmp_path: Path) -> None:
    planted = "planted-0f3c9a7e51 'with' $signs"
    keep_secrets(here, planted)
    digest = hashlib.sha256(planted.encode()).hexdigest()
    world = image_of(tmp_path, f"""
        import hashlib, os
        both = {{os.environ["WANDB_API_KEY"], os.environ["MLFLOW_TRACKING_PASSWORD"]}}
        print("the digest is right:", [hashlib.sha256(it.encode()).hexdigest() for it in both] == ["{digest}"])
        while not (run / "looked").exists():
            time.sleep(0.1)
        """)  # fmt: skip
    node = here.launch(user_data(SECRETS=SECRETS), world=world)
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "try-0").exists(), node)

    lines = [line for pid in node.processes("") if (line := text_of(Path(f"/proc/{pid}/cmdline")))]
    file_on(node, "looked").touch()
    left = record(here, node)

    assert (left["code"], left["reason"]) == (0, "done")
    assert log_of(here, 0) == ["the digest is right: True"]
    assert any("trainer.torchrun" in line for line in lines)
    assert [line for line in lines if "planted" in line] == []
    assert [call for call in node.docker_calls if "planted" in str(call)] == []
    assert any("WANDB_API_KEY" in call for call in node.docker_calls)
    assert "planted" not in node.console
    assert [key for key in keys(here) if "planted" in get(here, key)] == []
    files = [path for path in node.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if b"planted" in path.read_bytes()] == []


@needs_nodes
def test_a_secret_that_cannot_be_read_ends_the_node_before_it_trains(here: Region) -> None:
    node = here.launch(user_data(SECRETS=["KEY=ssm:/ddp-toolkit/none"]))
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"]) == (27, "secret")
    assert left["reason"] == "cannot read ssm:/ddp-toolkit/none for KEY"
    assert not any(call[0] == "run" for call in node.docker_calls)
    assert "ParameterNotFound" in get(here, f"boot/{node.instance}.log")


@needs_nodes
def test_a_secret_of_bytes_ends_the_node_and_no_training_gets_none_for_it(here: Region) -> None:
    """AWS's command line says None where there is no text."""
    here.client("secretsmanager").create_secret(Name="ddp-toolkit/bytes", SecretBinary=b"\xff planted")
    node = here.launch(user_data(SECRETS=["KEY=secretsmanager:ddp-toolkit/bytes"]))
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"]) == (27, "secret")
    # As trainer/process/secrets.py says it.
    assert left["reason"] == "--secret KEY: secretsmanager:ddp-toolkit/bytes is binary; store it as text."
    assert not any(call[0] == "run" for call in node.docker_calls)
    assert "planted" not in get(here, f"boot/{node.instance}.log")


def keep_secrets(here: Region, value: str) -> None:
    """Both of SECRETS have this value."""
    here.client("ssm").put_parameter(Name="/ddp-toolkit/wandb", Type="SecureString", Value=value)
    here.client("secretsmanager").create_secret(Name="ddp-toolkit/mlflow", SecretString=value)


@needs_nodes
def test_a_node_that_no_cluster_json_names_leaves(here: Region) -> None:
    node = here.launch(user_data(seconds={"CLUSTER_S": 1}))
    put(here, "cluster.json", '{"job": "job-1", "generation": 1, "deadline": 0, "nodes": []}')

    left = record(here, node)

    assert (left["code"], left["step"], left["rank"]) == (21, "cluster", None)


@needs_nodes
def test_a_node_turns_itself_off_though_s3_is_out_of_reach(here: Region) -> None:
    script = user_data(seconds={"CLUSTER_S": 1, "AWS_MAX_ATTEMPTS": 1})
    node = here.launch(script, world=World(aws="http://10.77.0.1:9"))

    node.wait_until_off()

    assert node.shutdowns == ["-h +90", "-h now"]


@needs_nodes
def test_a_node_that_the_cluster_does_not_name_any_more_leaves(here: Region, tmp_path: Path) -> None:
    node = here.launch(user_data(), world=image_of(tmp_path, "time.sleep(1); sys.exit(6)"))
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "try-0").exists(), node)

    others = json.loads(get(here, "cluster.json").replace(node.instance, "i-0123456789abcdef0"))
    put(here, "cluster.json", json.dumps(others | {"generation": 2}))

    left = record(here, node)
    assert (left["code"], left["step"]) == (21, "cluster")
    assert "was replaced" in left["reason"]


@needs_nodes
def test_without_a_restart_left_the_trainings_exit_code_is_the_nodes(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, "print('error: rank 1 is lost.'); sys.exit(6)")
    node = here.launch(user_data(MAX_RESTARTS="0"), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"], left["restarts"]) == (6, "train", 0)
    assert left["reason"] == "no restarts left: rank 1 is lost."


@needs_nodes
def test_only_a_training_whose_nodes_met_uses_up_a_restart(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, """
        if tries == 0:
            print("error: the workers could not meet: nobody there;")
        sys.exit((6, 137, 0)[tries])
    """)  # fmt: skip
    node = here.launch(user_data(MAX_RESTARTS="1"), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["restarts"]) == (0, 1)


@needs_nodes
def test_nodes_that_never_meet_give_up(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, "print('error: the workers could not meet: nobody there;'); sys.exit(6)")
    node = here.launch(user_data(seconds={"MEET_S": 1}), world=world)
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"], left["restarts"]) == (6, "train", 0)
    assert "could not connect within 1 s" in left["reason"]


@needs_nodes
def test_a_node_asked_to_stop_while_it_pulls_says_so(here: Region) -> None:
    node = here.launch(user_data(), world=docker_that("pull", "exec sleep 3599"))
    put_cluster(here, node)
    wait_for(lambda: node.processes("sleep", "3599"), node)

    ask_to_stop(node, "sleep")

    left = record(here, node)
    assert (left["code"], left["step"]) == (143, "signal")
    assert "the node was stopped" in get(here, f"boot/{node.instance}.log")


@needs_nodes
def test_a_node_asked_to_stop_while_it_trains_lets_the_training_save(here: Region, tmp_path: Path) -> None:
    world = image_of(tmp_path, """
        def save(*_):
            (run / "saved").touch()
            sys.exit(75)
        signal.signal(signal.SIGTERM, save)
        (run / "ready").touch()
        time.sleep(60)
    """)  # fmt: skip
    node = here.launch(user_data(), world=world)
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "ready").exists(), node)

    ask_to_stop(node)

    assert record(here, node)["code"] == 143
    assert "run/saved" in keys(here)


def ask_to_stop(node: Node, *more: str) -> None:
    """As systemd asks when the node is stopped from outside: the boot script, its log, and programs named in `more`."""
    for name in ("/var/lib/cloud/instance/scripts/part-001", "tee", *more):
        for pid in node.processes(name):
            os.kill(pid, signal.SIGTERM)


# ---- data and results


@needs_nodes
def test_data_from_s3_are_on_the_node_and_nobody_can_change_them(here: Region, tmp_path: Path) -> None:
    here.client("s3").put_object(Bucket=BUCKET, Key="data/train/a.txt", Body=b"an image")
    world = image_of(tmp_path, """
        import errno
        (run / "seen").write_text(Path("/data/train/a.txt").read_text())
        try:
            Path("/data/b").touch()
        except OSError as error:
            assert error.errno == errno.EROFS
            sys.exit(0)
    """)  # fmt: skip
    node = here.launch(user_data(DATA_S3=f"s3://{BUCKET}/data"), world=world)
    put_cluster(here, node)

    assert record(here, node)["code"] == 0
    assert get(here, "run/seen") == "an image"


@needs_nodes
def test_only_what_changed_on_this_node_goes_to_the_job_folder(here: Region, tmp_path: Path) -> None:
    put(here, "run/others.txt", "old")
    put(here, "run/mine.txt", "old")
    put(here, "run/gone.txt", "old")
    world = image_of(tmp_path, """
        (run / "mine.txt").write_text("new")
        (run / "gone.txt").unlink()
        (run / ".half.pt.7.tmp").touch()
        (run / "ready").touch()
        while not (run / "go").exists():
            time.sleep(0.05)
        (run / "last.txt").write_text("last")
    """)  # fmt: skip
    node = here.launch(user_data(seconds={"UPLOAD_EVERY_S": 1}), world=world)
    put_cluster(here, node)
    wait_for(lambda: file_on(node, "ready").exists(), node)
    put(here, "run/others.txt", "new")

    wait_for(lambda: "run/ready" in keys(here) and "run/gone.txt" not in keys(here), node)
    file_on(node, "go").touch()

    assert record(here, node)["code"] == 0
    assert [get(here, f"run/{name}.txt") for name in ("others", "mine", "last")] == ["new", "new", "last"]
    assert {key for key in keys(here) if key.startswith("run/")} == {
        "run/others.txt", "run/mine.txt", "run/last.txt", "run/ready", "run/go", "run/try-0",
    }  # fmt: skip


# ---- the nodes themselves


@needs_nodes
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_a_test_that_is_killed_leaves_nothing_behind(signum: signal.Signals, digits: Volume, tmp_path: Path) -> None:
    code = rf"""if True:
        import time
        from pathlib import Path
        from tests.launch.ec2.nodes import Volume, region
        with region(Path("{tmp_path}/region")) as here:
            mount = "mount -o ro,noload /dev/disk/by-id/nvme* /data"
            volume = Volume("vol-0", Path("{digits.image}"))
            here.launch("#!/bin/bash\n" + mount + " && echo up; sleep 60", volume=volume)
            while "up" not in here.nodes[0].console:
                time.sleep(0.01)
            print(*here.namespaces, flush=True)
            time.sleep(60)
    """
    test = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with test:
        assert test.stdout is not None
        namespaces = set(test.stdout.readline().split())
        assert len(namespaces) >= 5

        with held(namespaces):
            test.send_signal(signum)
            test.wait()
            assert left_of(tmp_path, namespaces) == []
    assert left_of(digits.image.parent, set()) == []
