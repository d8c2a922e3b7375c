"""The Dockerfile, built for real and run for real; and two nodes that train in it under the real boot script."""

from __future__ import annotations

import json
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

from launch.image import codebuild, engines
from launch.image.options import Program
from launch.image.source import pack, read_source
from launch.rehearse.nodes.ec2.node import NodeSetup, write_program
from launch.rehearse.nodes.sagemaker.container import ContainerSpec, _write_files
from tests import needs
from tests.container.engine import BASE, IMAGE, Engine, conf, fetch_wheels
from tests.container.registry import Registry, digest_of, serving
from tests.launch.ec2.boot.job import BUCKET, LOG_GROUP, epochs, get, keys, put_cluster, record, user_data
from tests.launch.ec2.nodes import CLOUD, PORT, Region, region
from tests.warm import free_port
from trainer.contract import SAGEMAKER_SCRIPT, SAGEMAKER_SCRIPT_TEXT

pytestmark = needs.containers()

# What each test shows.
contents = pytest.mark.slow("the image built from the real Dockerfile holds the trainer and what its base lacks")
misfits = pytest.mark.slow("a base or a wheel that does not fit ends the build of the image")
trains = pytest.mark.slow("the container trains as nobody on a read-only disk, and as a SageMaker training job")
pushes = pytest.mark.slow("launch.image's commands push the container, and CodeBuild's give the same bytes")
two_nodes = pytest.mark.slow("two nodes train in the container under the real boot script")

READ_ONLY = ("--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp")
SMALL = ("--model", "cnn", "--dataset", "digits", "--epochs", "1", "--no-plot", "--precision", "fp32", "--threads", "1",
         "--probe-steps", "0")  # fmt: skip
# moto's, of the account that it makes up.
PASSWORD = "123456789012-auth-token"
REGISTRY_PORT = 5001
# What buildah writes for a stage that only sets the user.
EMPTY_LAYER = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"

# docker on a node: podman, without its one flag that podman lacks.  A node's own /sys has no control groups.
DOCKER = """#!/bin/bash
export CONTAINERS_CONF=/ec2/bin/containers.conf CONTAINERS_REGISTRIES_CONF=/ec2/bin/registries.conf HOME=/root
export TMPDIR=/var/tmp XDG_RUNTIME_DIR=/run PATH=$PATH:/usr/sbin:/sbin
mkdir -p /var/tmp /run/libpod
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
words=()
while [ $# -gt 0 ]; do
    case $1 in
        --log-driver | --log-opt | --ulimit) shift 2 ;;
        run) words+=(run --ulimit nofile=1024:1024 --ulimit nproc=1000:1000) && shift ;;
        *) words+=("$1") && shift ;;
    esac
done
echo "${words[*]}" >> /ec2/docker-said
exec podman --root /var/lib/containers --runroot /run/storage --storage-driver overlay "${words[@]}"
"""


def answer(engine: Engine, program: str, image: str = IMAGE) -> Any:
    """What a Python program in a container prints, as JSON."""
    ended = engine.run(image, "python", "-c", f"import json, sys; from importlib import metadata, util; {program}")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


# That only some images have.


PACKAGES = "print(json.dumps({d.metadata['Name'].lower(): d.version for d in metadata.distributions()}))"


# ---- what is in it


@contents
def test_what_the_base_has_stays_and_only_the_trainer_and_what_it_lacks_comes(engine: Engine) -> None:
    base, image = (answer(engine, PACKAGES, name) for name in (BASE, IMAGE))

    assert {name: image[name] for name in base} == base
    assert image["torch"] == metadata.version("torch")
    assert {name: image[name] for name in set(image) - set(base)} == {
        "aws-ddp-toolkit": "0.1.0", "simplejpeg": "1.9.0", "pytorch_optimizer": "4.1.0", "nvidia-ml-py": "13.615.71",
        "obstore": "0.12.1",
    }  # fmt: skip


@contents
def test_the_trainer_is_alone_in_it(engine: Engine) -> None:
    assert answer(engine, "print(json.dumps([bool(util.find_spec(m)) for m in ('trainer', 'launch', 'infra')]))") == [
        True, False, False,
    ]  # fmt: skip


@contents
def test_it_adds_little_and_leaves_nothing_of_the_build(
    engine: Engine, record_property: Callable[[str, object], None]
) -> None:
    base, image = engine.layers(BASE), engine.layers(IMAGE)
    (added,) = set(image) - set(base) - {EMPTY_LAYER}
    files = engine.files_of(IMAGE, added)

    assert image[added] < 25e6  # half of it is obstore
    record_property("image", f"{image[added] / 1e6:.1f} MB beyond the base, {len(files)} files")
    assert {path.split("/")[0] for path in files} == {"etc", "opt"}
    assert [path for path in files if path.startswith("etc")] == ["etc/passwd"]


@contents
def test_it_says_who_it_is_and_nothing_secret(engine: Engine) -> None:
    config, source = engine.inspect(IMAGE)["config"], read_source(engine.checkout, "trainer", BASE)

    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.title"] == "aws-ddp-toolkit"
    assert config["Labels"]["org.opencontainers.image.base.name"] == BASE
    assert config["Labels"]["org.opencontainers.image.revision"] == source.content
    assert config["Labels"]["org.opencontainers.image.version"] == metadata.version("aws-ddp-toolkit")
    software = json.loads(engine.run(IMAGE, "/opt/ddp/sbom.cdx.json", flags=("--entrypoint", "cat")).stdout)
    assert {"torch", "simplejpeg", "pydantic"} <= {row["name"] for row in software["components"]}
    assert config.get("Healthcheck") is None
    assert sorted(setting.split("=")[0] for setting in config["Env"]) == [
        "HOME", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "SAGEMAKER_TRAINING_MODULE",
    ]  # fmt: skip
    assert "opensesame" not in engine.buildah("inspect", "--type", "image", IMAGE)


# ---- what ends its build


@misfits
def test_a_base_with_a_version_that_does_not_fit(engine: Engine, tmp_path: Path) -> None:
    old = tmp_path / "old/pydantic-1.10.26.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: pydantic\nVersion: 1.10.26\n")

    with pytest.raises(AssertionError) as failed:
        engine.build(f"{IMAGE}-old", base=engine.base_with(tmp_path / "old", "PYTHONPATH=/opt/more"))

    assert "aws-ddp-toolkit 0.1.0 depends on pydantic>=2" in str(failed.value)
    assert "The user requested (constraint) pydantic==1.10.26" in str(failed.value)
    assert "if versions conflict, use another base." in str(failed.value)


@misfits
def test_a_wheel_that_is_not_the_locked_one(engine: Engine, tmp_path: Path) -> None:
    shutil.copytree(engine.wheels, tmp_path / "wheels")
    (wheel,) = (tmp_path / "wheels").glob("simplejpeg-*")
    wheel.write_bytes(wheel.read_bytes() + b"\0")  # as good a zip as before

    with pytest.raises(AssertionError, match=r"(?s)DO NOT MATCH THE HASHES.*simplejpeg==1\.9\.0"):
        replace(engine, wheels=tmp_path / "wheels").build(f"{IMAGE}-forged")


# ---- on one machine


@trains
def test_it_trains_as_nobody_on_a_read_only_disk(engine: Engine, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    ended = engine.run(IMAGE, *SMALL, "--plot", flags=(*READ_ONLY, "-v", f"{tmp_path}:/job/runs"))

    assert ended.returncode == 0, ended.stderr
    (run,) = tmp_path.iterdir()
    assert {file.name for file in run.iterdir()} >= {"model.pt", "metrics.jsonl", "curves.png"}
    assert run.stat().st_uid == 10001


@trains
def test_a_command_runs_as_it_is_and_wrong_flags_end_with_the_trainers_code(engine: Engine) -> None:
    command = engine.run(IMAGE, "python", "-c", "print('here')")
    wrong = engine.run(IMAGE, "--modle", "cnn")

    assert (command.stdout, command.returncode) == ("here\n", 0)
    assert (wrong.returncode, "did you mean" in wrong.stderr) == (2, True)


# ---- on SageMaker


def opt_ml(folder: Path, **settings: Any) -> Path:
    """The /opt/ml of a small training."""
    given = {"model": "cnn", "epochs": 1, "threads": 1, "plot": False, "probe_steps": 0, **settings}
    _write_files(ContainerSpec(folder, {name: json.dumps(value) for name, value in given.items()}), "lo")
    return folder


@trains
def test_for_sagemaker_it_is_the_same_but_root_and_runs_in_awss_toolkit(engine: Engine, tmp_path: Path) -> None:
    """Built once more, from a base that is known by its digest, and a source that is known by its URL."""
    name, digest = f"{IMAGE}-sagemaker", engine.buildah("images", "--format", "{{.Digest}}", BASE).strip()
    source = replace(read_source(engine.checkout, "sagemaker", f"{BASE}@{digest}"), url="https://example.com/toolkit")
    engine.build_from(source, name)
    settings = {"dataset": "synthetic", "synthetic_images": 64, "image_size": 8, "batch_size": 8,
                "sagemaker_program": SAGEMAKER_SCRIPT, "sagemaker_submit_directory": "/opt/ml/code"}  # fmt: skip
    ml = opt_ml(tmp_path / "ml", **settings)
    (ml / "code" / SAGEMAKER_SCRIPT).write_text(SAGEMAKER_SCRIPT_TEXT)

    ended = engine.run(name, "train", flags=("-v", f"{ml}:/opt/ml"))

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {"model.pt", "metrics.jsonl"} <= {file.name for file in (ml / "model").iterdir()}
    assert set(engine.layers(name)) == set(engine.layers(IMAGE))  # so both builds gave the same bytes
    config = engine.inspect(name)["config"]
    assert config["User"] == "0"
    assert config["Labels"]["org.opencontainers.image.base.digest"] == digest
    assert config["Labels"]["org.opencontainers.image.source"] == "https://example.com/toolkit"


@trains
def test_without_awss_toolkit_train_is_our_own(engine: Engine, tmp_path: Path) -> None:
    ml = opt_ml(tmp_path / "ml", dataset="digits")
    flags = ("--user", "0", "-v", f"{ml}:/opt/ml", "-v", "/dev/null:/opt/base/bin/train",
             "-e", f"MASTER_PORT={free_port()}")  # fmt: skip

    ended = engine.run(IMAGE, "train", flags=flags)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {"model.pt", "metrics.jsonl"} <= {file.name for file in (ml / "model").iterdir()}


# ---- with JupyterLab


@pytest.mark.slow("the launcher's image is small, has no torch, and launches")
def test_the_launchers_image_has_the_launcher_and_little_else(
    engine: Engine, record_property: Callable[[str, object], None]
) -> None:
    image = f"{IMAGE}-launcher"
    fetch_wheels(engine.wheels, "--requirement", str(engine.checkout / "infra/locks/launcher.txt"))
    engine.build(image, "launcher")
    config, layers = engine.inspect(image)["config"], engine.layers(image)
    added = max(set(layers) - set(engine.layers(BASE)), key=lambda layer: layers[layer])

    record_property("image", f"{layers[added] / 1e6:.1f} MB beyond the base")
    assert layers[added] < 80e6  # unpacked
    packages = {path.split("/")[2] for path in engine.files_of(image, added) if path.startswith("opt/packages/")}
    assert {"launch", "infra", "trainer", "boto3"} <= packages
    assert not {"torch", "numpy", "moto"} & packages
    assert (config["User"], config.get("Entrypoint") or None) == ("10001:10001", None)
    assert "opensesame" not in engine.buildah("inspect", "--type", "image", image)
    ran = engine.run(image, "python", "-m", "launch.ec2", "--nodes", "2", "--dry-run", flags=("--read-only",))
    assert "2 x g5.2xlarge" in ran.stdout, ran.stderr


@pytest.mark.slow("JupyterLab in the container answers and trains: pytest --lab")
def test_the_lab_answers_and_trains(engine: Engine, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--lab"):
        pytest.skip("downloads JupyterLab and takes a minute: pytest --lab")
    fetch_wheels(engine.wheels, "jupyterlab", with_all=True)
    engine.build(f"{IMAGE}-lab", "jupyter")
    config = engine.inspect(f"{IMAGE}-lab")["config"]
    script = """
        import subprocess, sys, time
        lab = subprocess.Popen([*{command}, "--port=18765"])
        healthy = [word.replace("8888", "18765") for word in {healthy}]
        for _ in range(60):
            time.sleep(1)
            if subprocess.run(healthy, capture_output=True).returncode == 0:
                break
        else:
            sys.exit("nobody answers")
        lab.terminate()
        from launch import local
        print(local.train(model="cnn", dataset="digits", epochs=1, plot=False, threads=1)[-1]["epoch"])
    """.format(command=config["Cmd"], healthy=config["Healthcheck"]["Test"][1:])  # fmt: skip

    ended = engine.run(f"{IMAGE}-lab", "python", "-c", textwrap.dedent(script))

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "1"), ended.stderr


# ---- on EC2


def pushed(engine: Engine, builder: Program = "podman") -> tuple[Registry, str]:
    """A registry that has the image, pushed as launch.image does it, and the digest."""
    registry = Registry(PASSWORD)
    with serving(registry.server("127.0.0.1", 0)) as host:
        name = f"{host}/aws-ddp-toolkit:latest"
        engine.output_of(builder, "tag", IMAGE, name)
        program, verb, *words = engines.log_in(builder, host)
        # buildah login alone does not read registries.conf.
        no_tls = ["--tls-verify=false"] if builder == "buildah" else []
        engine.output_of(program, verb, *no_tls, *words, stdin=PASSWORD, host=host)
        engine.output_of(*engines.push(builder, name), host=host)
        engine.output_of(*engines.log_out(builder, host), host=host)
    return registry, next(tag for tag in registry.manifests if tag.startswith("sha256:"))


@pushes
@pytest.mark.parametrize("builder", ["podman", "buildah"])
def test_launch_images_commands_push_it_and_leave_no_login(builder: Program, engine: Engine) -> None:
    registry, digest = pushed(engine, builder)

    kind, manifest = registry.manifests["latest"]
    assert digest == digest_of(manifest)
    assert kind == "application/vnd.docker.distribution.manifest.v2+json"
    assert json.loads((engine.own / "auth.json").read_text()).get("auths", {}) == {}


@pushes
def test_codebuild_builds_and_pushes_from_what_is_uploaded(engine: Engine, tmp_path: Path) -> None:
    """The zip and the buildspec's own commands; docker is buildah and podman, and no machine is CodeBuild's."""
    source, registry = read_source(engine.checkout, "trainer", BASE), Registry(PASSWORD)
    context, programs = tmp_path / "context", tmp_path / "bin"
    programs.mkdir()
    write_program(programs / "docker", engine.as_docker())
    write_program(
        programs / "aws", f'#!/bin/sh\n[ "$*" = "ecr get-login-password --region us-east-1" ] && echo {PASSWORD}\n'
    )
    with ZipFile(BytesIO(pack(source).content)) as file:
        file.extractall(context)
    phases = yaml.safe_load((context / "infra/container/buildspec.yaml").read_text())["phases"]
    script = "\n".join(["set -e", *(line for phase in phases.values() for line in phase["commands"])])

    with serving(registry.server("127.0.0.1", 0)) as host:
        given = codebuild.variables(source, f"{host}/aws-ddp-toolkit:{source.tag}", {host: "us-east-1"})
        env = engine.env(host)
        ended = subprocess.run(["bash", "-c", script], cwd=context, capture_output=True, text=True, check=False,
                               env={**env, **given, "PATH": f"{programs}:{env['PATH']}"})  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr
    _, manifest = registry.manifests[source.tag]
    (ours,) = (layer for layer in engine.layers(IMAGE) if layer not in (*engine.layers(BASE), EMPTY_LAYER))
    config = json.loads(registry.blobs[json.loads(manifest)["config"]["digest"]])
    assert ours in config["rootfs"]["diff_ids"]  # the bytes of a checkout's build


def with_podman(folder: Path) -> NodeSetup:
    """A node whose docker is podman, with podman's settings, which are written to `folder`, too."""
    conf(folder, f"{CLOUD}:{REGISTRY_PORT}")
    settings = {name: (folder / name).read_text() for name in ("containers.conf", "registries.conf")}
    return NodeSetup(f"http://{CLOUD}:{PORT}", programs={"docker": DOCKER, **settings})


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Region]:
    with region(tmp_path / "region") as made:
        made.client("s3").create_bucket(Bucket=BUCKET)
        made.client("logs").create_log_group(logGroupName=LOG_GROUP)
        yield made


@two_nodes
def test_two_nodes_train_in_it_under_the_boot_script(engine: Engine, here: Region, tmp_path: Path) -> None:
    registry, digest = pushed(engine)
    host = f"{CLOUD}:{REGISTRY_PORT}"
    script = user_data(*SMALL, IMAGE=f"{host}/aws-ddp-toolkit@{digest}", REGISTRY=host, DOCKER_FLAGS=[])

    with serving(here.network.place(lambda: registry.server(CLOUD, REGISTRY_PORT))):
        pair = [here.launch(script, world=with_podman(tmp_path)) for _ in range(2)]
        put_cluster(here, *pair)
        records = [record(here, node) for node in pair]

    assert [left["code"] for left in records] == [0, 0], pair[0].console
    assert epochs(here) == [1]
    assert {"run/model.pt", "run/config.yaml"} <= keys(here)
    (run,) = {file.parent for file in (pair[0].root / "var/lib/ddp").rglob("model.pt")}
    assert run.joinpath("model.pt").stat().st_uid == 10001
    assert "world_size" not in get(here, "run/config.yaml")
