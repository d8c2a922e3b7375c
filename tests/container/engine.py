"""Builds and runs the real Dockerfile with buildah, podman and runc: without a Docker engine or an outside registry.

The base takes a second: links to this machine's Python and packages, which volumes provide at run time, without the
packages that AWS's images lack.  So the sizes are those of the Dockerfile's own layers.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from launch.image import engines
from launch.image.options import Target
from launch.image.source import Source, read_source
from launch.rehearse.nodes.ec2.node import write_program
from tests.conftest import ROOT
from trainer.files import write_atomically

# Packages that AWS's images lack, by infra/images.yaml and for --data-url; their files in site-packages.
LACKING = ("simplejpeg", "pytorch_optimizer", "nvidia-ml-py", "obstore")
FILES = (
    "simplejpeg", "obstore", "pytorch_optimizer", "nvidia_ml_py", "pynvml", "aws_ddp_toolkit", "__editable__",
    "jupyterlab-",
)  # fmt: skip
BASE, IMAGE = "localhost/base", "localhost/ddp"

CONF = """
[containers]
volumes = [{volumes}]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
log_driver = "k8s-file"
pids_limit = 0
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
TRAIN = "#!/opt/base/bin/python\nfrom sagemaker_training.cli.train import main\n\nmain()\n"
# skip_mount_home: podman would otherwise leave the storage mounted on itself, and pytest could not remove the folder.
STORAGE = """[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
[storage.options.overlay]
skip_mount_home = "true"
"""
REGISTRIES = '[[registry]]\nlocation = "{host}"\ninsecure = true\n'


def shared_folders() -> list[str]:
    """What a container sees of this machine, read-only: its programs, Python, and the packages."""
    return ["/usr", sys.base_prefix, sysconfig.get_path("purelib")]


def volumes() -> list[str]:
    """The same, for containers.conf and -v."""
    return [f"{folder}:{folder}:ro" for folder in shared_folders()]


def conf(folder: Path, host: str = "") -> dict[str, str]:
    """Writes podman's settings to `folder`; returns the variables for them.  host: a registry without TLS."""
    quoted = ", ".join(f'"{volume}"' for volume in volumes())
    # A container that has just been started may be reading them.
    write_atomically(folder / "containers.conf", CONF.format(volumes=quoted))
    write_atomically(folder / "registries.conf", REGISTRIES.format(host=host) if host else "")
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
    }


# An index of one's own, with a password.
INDEX = "https://ann:opensesame1@index.invalid/simple"


@dataclass(frozen=True)
class Engine:
    """Images and what builds them.

    folder: for all files; wheels: pip's packages; checkout: a copy of this one, so that edits during the tests do not
    change what is built.
    """

    folder: Path
    wheels: Path

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    @property
    def own(self) -> Path:
        """A folder of this worker: workers share images, but not settings and logins."""
        place = self.folder / f"worker-{os.getpid()}"
        place.mkdir(exist_ok=True)
        return place

    def buildah(self, *words: object) -> str:
        """The output of buildah.  Fails with its errors."""
        return self.output_of("buildah", *words)

    def build(self, tag: str, target: Target = "trainer", base: str = BASE) -> None:
        """Builds the Dockerfile with launch.image's own command."""
        self.build_from(read_source(self.checkout, target, base), tag)

    def build_from(self, source: Source, tag: str) -> None:
        command, verb, *words = engines.build("buildah", source, tag)
        self.output_of(command, verb, *self.build_options, *words)

    @property
    def build_options(self) -> list[str]:
        """Options that a build needs on this machine in addition to launch.image's."""
        mounted = [*volumes(), f"{self.wheels}:/wheels:ro"]
        return [
            "--quiet", "--isolation", "chroot", "--pull-never",
            *(word for volume in mounted for word in ("-v", volume)),
            *("--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"),
            *("--build-arg", f"PIP_EXTRA_INDEX_URL={INDEX}"),  # which nobody asks
        ]  # fmt: skip

    def as_docker(self) -> str:
        """A program with docker's command line.  Fixed file times give the same layers as the other builds."""
        words = ["buildah", "build", "--format", "docker", "--timestamp", engines.EPOCH, *self.build_options]
        build = shlex.join(words)
        return f'#!/bin/sh\nverb=$1\nshift\n[ "$verb" = build ] && exec {build} "$@"\nexec podman "$verb" "$@"\n'

    def base_with(self, folder: Path, setting: str) -> str:
        """A base with this folder as /opt/more and an environment variable, NAME=value."""
        container = self.buildah("from", BASE).strip()
        self.buildah("add", "--quiet", container, folder, "/opt/more")
        self.buildah("config", "--env", setting, container)
        self.buildah("commit", "--quiet", "--rm", container, name := f"{BASE}-{folder.name}")
        return name

    def run(self, image: str, *words: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Runs a container to its end.  flags: of podman run."""
        # --ulimit: runc fails at times to set limits of its own, with "operation not permitted".
        command = ["podman", "run", "--rm", "--pull", "never", "--ulimit", "host", "--network", "host", *flags, image,
                   *words]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.env(), timeout=120)

    def inspect(self, image: str) -> dict[str, Any]:
        """buildah's description of the image, in Docker's format."""
        described: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", image))["Docker"]
        return described

    def layers(self, image: str) -> dict[str, int]:
        """The size of each layer, uncompressed, in bytes, by its digest."""
        place = self.own / "layers"
        self.buildah("push", "--quiet", "--disable-compression", image, f"dir:{place}")
        found = json.loads((place / "manifest.json").read_text())["layers"]
        shutil.rmtree(place)
        return {layer["digest"]: layer["size"] for layer in found}

    def files_of(self, image: str, layer: str) -> list[str]:
        """The files in one of its layers, without folders and empty files, which are mount points."""
        place = self.own / "layers"
        self.buildah("push", "--quiet", "--disable-compression", image, f"dir:{place}")
        with tarfile.open(place / layer.removeprefix("sha256:")) as tar:
            names = [member.name for member in tar if member.size]
        shutil.rmtree(place)
        return names

    def output_of(self, *words: object, stdin: str = "", host: str = "") -> str:
        """The output of a program that uses these images.  Fails with its errors.  host: a registry without TLS."""
        ended = subprocess.run(
            [str(word) for word in words], input=stdin, env=self.env(host), capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def env(self, host: str = "") -> dict[str, str]:
        """For podman and buildah."""
        if not (auth := self.own / "auth.json").exists():
            auth.write_text("{}")
        write_atomically(self.own / "storage.conf", STORAGE.format(folder=self.folder))
        return {
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
            "HOME": str(self.own),
            "CONTAINERS_STORAGE_CONF": str(self.own / "storage.conf"),
            "REGISTRY_AUTH_FILE": str(auth),
            **conf(self.own, host),
        }


@contextmanager
def engine_in(folder: Path) -> Iterator[Engine]:
    """An engine with the base and IMAGE, which the first worker builds and the others find."""
    made = Engine(folder, folder / "wheels")
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            copy_checkout(made.checkout)
            fetch_wheels(made.wheels, *LACKING, "setuptools==84.2.1")
            make_base(made)
            made.build(IMAGE)
            (folder / "ready").touch()
    yield made


def copy_checkout(folder: Path) -> None:
    """Copies the files of all images."""
    for target in get_args(Target):
        for name in read_source(ROOT, target, BASE).names:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)


def make_base(engine: Engine) -> None:
    """Makes the base image: Python, pip, torch and most of what the trainer needs."""
    root = engine.folder / "base"
    packages = root / "opt/base/lib/python{}.{}/site-packages".format(*sys.version_info)
    for folder in (packages, root / "opt/base/bin", *(root / name for name in ("usr", "etc", "tmp", "var/tmp", "run"))):
        folder.mkdir(parents=True)
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(FILES):
            (packages / path.name).symlink_to(path)
    python = Path(sys.executable).resolve()
    (root / "opt/base/bin/python").symlink_to(python)
    write_program(root / "opt/base/bin/train", TRAIN)  # as in AWS's images
    write_program(root / "opt/base/bin/which", '#!/bin/sh\ncommand -v "$1"\n')  # Debian's needs more of /etc
    (root / "opt/base/pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    for link in [path for path in Path("/").iterdir() if path.is_symlink()]:  # /bin and /lib
        (root / link.name).symlink_to(link.readlink())
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    container = engine.buildah("from", "scratch").strip()
    engine.buildah("add", "--quiet", container, root, "/")
    env = ("PATH=/opt/base/bin:/usr/sbin:/usr/bin:/sbin:/bin",
           "SAGEMAKER_TRAINING_MODULE=sagemaker_pytorch_container.training:main")  # fmt: skip
    engine.buildah("config", *(word for setting in env for word in ("--env", setting)), container)
    engine.buildah("commit", "--quiet", "--timestamp", engines.EPOCH, "--rm", container, BASE)
    shutil.rmtree(root)


def fetch_wheels(folder: Path, *wanted: str, with_all: bool = False) -> None:
    """Downloads packages that pip would get from PyPI in the build.  with_all: with dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
    command += [] if with_all else ["--no-deps"]
    subprocess.run([*command, "--dest", folder, "--constraint", ROOT / "constraints.txt", *wanted], check=True)
