"""The cases: a function and a line in the table each.  They run in this order, and share one account."""

import io
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from launch.aws import containers
from launch.aws.names import TIME, tags
from launch.infra.lookup import look_up, stack_of
from launch.infra.template import KEPT
from tests.conftest import ROOT
from tests.launch.rehearse.ec2.photos import write_images
from tests.live import network
from tests.live.suite import Suite
from trainer.contract import METRICS

BASE = "public.ecr.aws/docker/library/python:3.12-slim"  # small, and any machine may pull it


@dataclass(frozen=True)
class Case:
    """most_usd: what it can cost, on demand, if its own limits end it.  is_gpu: only where a GPU is requested.

    only_aws: the embedded AWS has no such nodes.
    """

    name: str
    run: Callable[[Suite], None]
    most_usd: float = 0.0
    is_gpu: bool = False
    only_aws: bool = False


def infra_up(suite: Suite) -> None:
    region = ("--region", suite.place.region)
    _note_what_was_there(suite)
    code, text = suite.run("launch.infra", "up", "--yes", *region)
    suite.need("launch.infra up ends with 0", code == 0, text[-300:])
    code, text = suite.run("launch.infra", "up", "--yes", *region)
    suite.claim("a second one changes nothing", code == 0 and "up to date" in text, text[-300:])
    stack = stack_of(suite.aws)
    suite.claim("CloudFormation says that the stack is whole", stack and stack.status.endswith("_COMPLETE"))


def image_push(suite: Suite) -> None:
    words = ("launch.image", "push", "--builder", "codebuild", "--base", BASE, "--region", suite.place.region)
    code, text = suite.run(*words)
    suite.need("CodeBuild builds and pushes the image", code == 0, text[-300:])
    code, text = suite.run(*words)
    suite.claim("a second push builds nothing", code == 0, text[-300:])


def no_push(suite: Suite) -> None:
    """Before anything was pushed."""
    code, text = suite.run(*suite.train("no-push"))
    suite.need("a job without a pushed image ends with 0", code == 0, text[-600:])
    image = str(suite.spec("no-push").get("image"))
    suite.claim("its nodes ran AWS's own image", containers.is_of_aws(image), image)
    suite.claim("nothing is left of it", not suite.living("no-push"))


def doctor_fix(suite: Suite) -> None:
    """From credentials alone: it runs what it says is missing."""
    _note_what_was_there(suite)
    code, text = suite.run(*suite.doctor_words("--fix", "--yes"))
    suite.claim("launch.doctor --fix --yes ends with 0", code == 0, text[-600:])
    suite.claim("and the account has a stack", stack_of(suite.aws) is not None)


def _note_what_was_there(suite: Suite) -> None:
    """What a stack before left, and `up` adopts, is the user's: it may hold all results."""
    if suite.made_stack:
        return  # this run has already made it
    before = look_up(suite.aws)
    suite.need("what was in the account before is known", not before.problems, "; ".join(map(str, before.problems)))
    suite.made_stack = before.stack is None
    suite.made = frozenset(KEPT) - set(before.adopted) if suite.made_stack else frozenset()


def denied_by_boundary(suite: Suite) -> None:
    """Rights that a boundary takes away again: AWS says which of the two refuses."""
    with suite.place.without_rights(suite.aws, f"acceptance-{suite.stamp}-bound", bounded=True) as env:
        code, text = suite.run(*suite.train("bounded"), env=env)
        suite.claim("whom a boundary binds is refused", code == 4, text[-600:])
        suite.claim("with the boundary as the reason", "permissions boundary" in text, text[-600:])
    suite.claim("nothing is left of it", not suite.living("bounded"))


def doctor(suite: Suite) -> None:
    code, text = suite.run(*suite.doctor_words())
    suite.claim("launch.doctor finds nothing missing", code == 0, text[-600:])


def two_nodes(suite: Suite) -> None:
    code, text = suite.run(*suite.train("two"))
    suite.need("a job of two nodes ends with 0", code == 0, text[-600:])
    outcome = suite.outcome("two")
    suite.claim("outcome.json says done", outcome.get("state") == "done", str(outcome))
    suite.claim("it says what the job cost", (outcome.get("usd") or 0) > 0, str(outcome.get("usd")))
    suite.claim("the weights are in the job's folder", suite.has_result("two", "model.pt"))
    suite.claim("nothing is left of it", not suite.living("two"))


def script(suite: Suite) -> None:
    """The small GPT of infra/examples, which knows nothing of AWS."""
    gpt = str(ROOT / "infra/examples/gpt/train.py")
    code, text = suite.run(*suite.script("script", gpt, "--steps", "20", "--every", "10"))
    suite.claim("a script of the user's own trains on two nodes and ends with 0", code == 0, text[-600:])
    suite.claim("its metrics are in the job's folder", suite.has_result("script", METRICS))
    suite.claim("its checkpoints are in the job's folder", suite.has_result("script", "checkpoints/"))
    suite.claim("nothing is left of it", not suite.living("script"))


def node_killed(suite: Suite) -> None:
    command = suite.start(*suite.train("node", epochs=suite.place.epochs))
    suite.until_it_trains(command)
    lost = suite.living("node")[-1]
    suite.aws.call("ec2", "TerminateInstances", {"InstanceIds": [lost]})
    code = suite.finish(command)
    suite.claim("a job whose node is terminated ends with 0", code == 0, command.text[-600:])
    suite.claim("the launcher says that the node was lost", "is lost; starting a replacement" in command.text)
    suite.claim("nothing is left of it", not suite.living("node"))


def worker_killed(suite: Suite) -> None:
    command = suite.start(*suite.train("worker", epochs=suite.place.epochs))
    suite.until_it_trains(command)
    nodes = suite.living("worker")
    why = suite.place.kill_worker(suite.aws, nodes[-1])
    suite.need("a worker is killed", not why, why)
    code = suite.finish(command)
    suite.claim("a job whose worker is killed ends with 0", code == 0, command.text[-600:])
    suite.claim("the training was started again on its node", suite.restarts("worker") > 0)
    suite.claim("no node was replaced for it", sorted(nodes) == sorted(suite.nodes_of("worker")))


def launcher_killed(suite: Suite) -> None:
    words = suite.train("launcher", epochs=suite.place.epochs)
    command = suite.start(*words)
    suite.until_it_trains(command)
    before = sorted(suite.living("launcher"))
    suite.kill(command)
    suite.need("the nodes run on without their launcher", sorted(suite.living("launcher")) == before)
    code, text = suite.run(*words)
    suite.claim("the same command follows the job to its end", code == 0, text[-600:])
    suite.claim("with the same nodes", before == sorted(suite.nodes_of("launcher")))
    suite.claim("nothing is left of it", not suite.living("launcher"))


def spot(suite: Suite) -> None:
    code, text = suite.run(*suite.train("spot", "--spot"))
    if code == 4 and "no capacity" in text:
        suite.tried.skipped = "no spot capacity"
        return
    suite.claim("a job on spot capacity ends with 0", code == 0, text[-600:])


def detach_attach(suite: Suite) -> None:
    code, text = suite.run(*suite.train("detached", "--detach", epochs=suite.place.epochs))
    suite.need("a detached launch returns 0 while the nodes run", code == 0 and suite.living("detached"), text[-600:])
    code, text = suite.run(*suite.verb("status", "detached"))
    suite.claim("status shows both nodes", code == 0 and all(node in text for node in suite.living("detached")))
    code, text = suite.run(*suite.verb("attach", "detached"))
    suite.claim("attach follows it to its end", code == 0, text[-600:])
    code, text = suite.run(*suite.verb("logs", "detached"))
    suite.claim("its log outlives the nodes", code == 0 and "loss" in text)
    suite.claim("nothing is left of it", not suite.living("detached"))


def stop(suite: Suite) -> None:
    code, text = suite.run(*suite.train("stopped", "--detach", epochs=suite.place.epochs))
    suite.need("a detached launch returns 0", code == 0, text[-600:])
    for words in ("stop ends it", "stopping twice is safe"):
        code, text = suite.run(*suite.verb("stop", "stopped"))
        suite.claim(words, code == 0, text[-300:])
    suite.claim("nothing is left of it", not suite.living("stopped"))


def time_limit(suite: Suite) -> None:
    words = suite.train("limit", epochs=100_000, hours=suite.place.short_h)
    command = suite.start(*words)
    code = suite.finish(command)
    suite.claim("a job that reaches its time limit ends with 75", code == 75, f"{code}: {command.text[-600:]}")
    suite.claim("nothing is left of it", not suite.living("limit"))


def data(suite: Suite) -> None:
    """A few images from this machine, by way of a snapshot, to two nodes; killed while its blocks are sent."""
    name, region = suite.job("photos"), ("--region", suite.place.region)
    words = ("launch.data", "publish", str(write_images(suite.folder / "photos")), "--name", name, *region)
    command = suite.start(*words, "--connections", "1")
    suite.until("launch.data writes blocks", lambda: " blocks to snap-" in command.text, command)
    suite.kill(command)
    code, text = suite.run(*words)
    suite.need("the same command goes on after kill -9", code == 0, text[-600:])
    suite.claim("every block is read back as it was written", "blocks are as they were written" in text, text[-300:])
    suite.claim("with one snapshot", len(suite.snapshots()) == 1, ", ".join(suite.snapshots()))
    code, text = suite.run("launch.data", "list", *region)
    suite.claim("list shows it as published", code == 0 and "published" in text, text[-300:])
    training = [*suite.train("data", "--data", name, "--image-size", "32")]
    training[training.index("digits")] = "imagefolder"
    training[training.index("--batch-size") + 1] = "4"
    code, text = suite.run(*training)
    suite.need("two nodes that mount it train to the end", code == 0, text[-600:])
    code, text = suite.run("launch.data", "delete", name, "--yes", *region)
    suite.claim("delete ends with 0", code == 0, text[-300:])
    left = suite.data_sets()
    suite.claim("and leaves neither snapshot nor object", not left, ", ".join(left))


def data_by_instance(suite: Suite) -> None:
    """The same images, as a tar in S3, published by an instance beside them; the launcher is killed meanwhile."""
    name, region = suite.job("tar"), ("--region", suite.place.region)
    source = suite.put_source(f"{name}.tar", _tar(suite.folder / "by-instance"))
    limits = ("--max-hours", "0.5", "--max-usd", "0.25")
    words = ("launch.data", "publish", source, "--name", name, "--by", "instance", *limits, *region)
    command = suite.start(*words)
    suite.until("an instance begins to publish", lambda: name in suite.publishing(), command)
    suite.kill(command)
    suite.need("it goes on without the launcher", name in suite.publishing())
    code, text = suite.run(*words)
    suite.need("the same command follows it to its end", code == 0, text[-600:])
    suite.claim("every block was read back as it was written", suite.verified(name) == "all", text[-600:])
    suite.claim("the instance is gone", name not in suite.publishing())
    code, text = suite.run("launch.data", "stop", name, *region)
    suite.claim("stop finds nothing to end", code == 0 and "no instance publishes" in text, text[-300:])
    code, text = suite.run("launch.data", "delete", name, "--yes", *region)
    left = suite.data_sets()
    suite.claim("delete leaves neither snapshot nor object", code == 0 and not left, text[-300:] + ", ".join(left))


def _tar(folder: Path) -> bytes:
    """A tar of images to train on and to evaluate on."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(write_images(folder), arcname=".")
    return content.getvalue()


def no_route(suite: Suite) -> None:
    """In a network of its own, which costs nothing."""
    with network.without_way_out(suite.aws, f"acceptance-{suite.stamp}") as subnet:
        code, text = suite.run(*suite.train("mute", "--subnet", subnet, "--dry-run"))
        suite.claim("a subnet without a route is refused before anything starts", code == 4, text[-600:])
        suite.claim("with the reason", "no route to the internet" in text)
        code, text = suite.run(*suite.doctor_words("--subnet", subnet))
        suite.claim("launch.doctor says the same", code == 4 and "no route to the internet" in text, text[-600:])


def no_permission(suite: Suite) -> None:
    with suite.place.without_rights(suite.aws, f"acceptance-{suite.stamp}") as env:
        code, text = suite.run(*suite.train("powerless", "--dry-run"), env=env)
        suite.claim("who may do nothing is refused", code == 4, text[-600:])
        suite.claim("with the right that lacks, and the policy", "infra/iam/launcher.json" in text, text[-300:])
        code, text = suite.run(*suite.doctor_words(), env=env)
        suite.claim("launch.doctor says unknown, and no traceback", "unknown" in text and "Traceback" not in text)


def leaks(suite: Suite) -> None:
    """A volume of a job of yesterday, in nobody's use."""
    yesterday = datetime.now(UTC) - timedelta(days=1)
    zone = suite.aws.call("ec2", "DescribeAvailabilityZones")["AvailabilityZones"][0]["ZoneName"]
    tagged = tags(suite.job("leak"), suite.bucket, yesterday, yesterday)
    suite.aws.call("ec2", "CreateVolume", {
        "AvailabilityZone": zone, "Size": 1, "VolumeType": "gp3",
        "TagSpecifications": [{"ResourceType": "volume", "Tags": tagged}],
    })  # fmt: skip
    code, text = suite.run("launch.ec2", "leaks", "--region", suite.place.region)
    suite.claim("leaks ends with 4", code == 4, text[-300:])
    suite.claim("and names the job of yesterday", suite.job("leak") in text, f"{yesterday:{TIME}}")
    code, text = suite.run(*suite.verb("stop", "leak"))  # not leaks --delete: others may use this account
    suite.claim("stop removes it", code == 0, text[-300:])
    code, text = suite.run("launch.ec2", "leaks", "--region", suite.place.region)
    suite.claim("and it is not listed any more", suite.job("leak") not in text, text[-300:])


def one_gpu(suite: Suite) -> None:
    words = [*suite.train("gpu")]
    words[words.index("c7i.large")], words[words.index("--nodes") + 1] = "g5.2xlarge", "1"
    words[words.index("0.3")] = "0.8"
    words.remove("--allow-cpu")
    code, text = suite.run(*words)
    suite.claim("a job on a GPU ends with 0", code == 0, text[-600:])
    suite.claim("and says that it used one", "cuda" in text.lower(), text[-600:])


def infra_down(suite: Suite) -> None:
    """Only if this run set the account up: what was there stays."""
    if not suite.made_stack:
        suite.tried.skipped = "the account was set up before this run"
        return
    give_up = time.monotonic() + suite.place.patience_s
    while suite.left() and time.monotonic() < give_up:
        time.sleep(2)  # nodes that shut down
    code, text = suite.run("launch.infra", "down", "--keep-data", "--yes", "--region", suite.place.region)
    suite.claim("launch.infra down ends with 0", code == 0, text[-600:])
    suite.claim("the stack is gone", stack_of(suite.aws) is None)
    network.remove_kept(suite.aws, suite.account, suite.bucket, suite.made)
    there = suite.set_up()
    suite.claim("nothing of what this run set up is left", not there, ", ".join(there))


JOB_USD = 0.12  # two c7i.large with 150 GB for half an hour, and the start of replaced nodes

CASES = (
    Case("doctor --fix", doctor_fix),
    Case("infra up", infra_up),
    Case("no push", no_push, JOB_USD),
    Case("image push", image_push, 0.30),  # an hour of CodeBuild
    Case("doctor", doctor),
    Case("no route", no_route),
    Case("no permission", no_permission),
    Case("boundary", denied_by_boundary, JOB_USD),
    Case("two nodes", two_nodes, JOB_USD),
    Case("script", script, JOB_USD),
    Case("node killed", node_killed, 1.5 * JOB_USD),
    Case("worker killed", worker_killed, JOB_USD),
    Case("launcher killed", launcher_killed, JOB_USD),
    Case("spot", spot, JOB_USD),
    Case("detach and attach", detach_attach, JOB_USD),
    Case("stop", stop, JOB_USD),
    Case("time limit", time_limit, JOB_USD),
    Case("data", data, JOB_USD + 0.01),  # and some hundred requests
    Case("data by instance", data_by_instance, 0.25, only_aws=True),
    Case("leaks", leaks, 0.01),
    Case("one GPU", one_gpu, 0.70, is_gpu=True),
    Case("infra down", infra_down),
)
