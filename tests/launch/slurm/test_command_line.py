"""launch.slurm's command line, where there is no Slurm."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launch.core.clock import Clock
from launch.core.errors import AwsError
from launch.core.terminal import say
from launch.slurm.runtime import Runtime
from tests.launch.data.desk import prepared
from tests.launch.slurm.user import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody with a laptop."""
    return User(Runtime({"PATH": str(tmp_path / "bin")}, tmp_path, sys.executable, Clock(), say))


def test_a_dry_run_shows_the_script_on_a_laptop(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    assert user.run("--nodes", "2", "--job-name", "job", "--dry-run=full") == 0

    out = capsys.readouterr().out
    assert "  #SBATCH --nodes=2\n" in out
    assert "problem: sinfo is not installed on this machine; run this on a login node" in out
    assert not user.folder.exists()


MANIFEST = json.dumps(prepared(90_000, 10_000, 3_000_000_000))


class Bucket:
    """A folder in S3, as far as a plan looks at it; None: for which there are no rights."""

    def __init__(self, content: str | None) -> None:
        self.region, self.content = "us-east-1", content

    def read(self, bucket: str, key: str, _most: int) -> bytes:
        if self.content is None:
            raise AwsError("s3:GetObject is refused", "AccessDenied")
        assert (bucket, key) == ("shared", "photos/manifest.json")
        return self.content.encode()


@pytest.mark.parametrize(("manifest", "is_known"), [(MANIFEST, True), (None, False)], ids=["whole", "none"])
@pytest.mark.parametrize("place", [("--data-dir", "shared"), ("--data-url", "s3://shared/photos")], ids=["disk", "S3"])
def test_a_dry_run_for_programs_forecasts_prepared_data(
    place: tuple[str, str],
    manifest: str | None,
    *,
    is_known: bool,
    user: User,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = user.runtime.cwd / "shared"
    folder.mkdir()
    if manifest:
        (folder / "manifest.json").write_text(manifest)
    user.runtime = replace(user.runtime, make_aws=lambda region: Bucket(manifest))
    words = ("--job-name", "job", "--gpus-per-node", "4", "--gpu-type", "a100", "--dataset", "imagefolder")
    assert user.run(*words, *place, "--dry-run=json") == 0

    plan = json.loads(capsys.readouterr().out)
    assert plan["command"] == ["sbatch", "--parsable", str(user.folder / "job.sbatch")]
    assert plan["files"]["job.sbatch"].startswith("#!/bin/bash\n#SBATCH --job-name=job\n")
    assert [problem["exit_code"] for problem in plan["problems"]] == [2]  # no Slurm here, and nothing of the data
    (quote,) = plan["quotes"]
    if is_known:
        assert plan["facts"]["data"]["train"] == 90_000
        assert 90_000 / quote["images_per_s"] == pytest.approx(quote["epoch_s"], rel=0.2)
    else:
        assert "its number of images is unknown" in quote["why_unknown"]


@pytest.mark.parametrize("argv", [["--nodes", "2"], ["stop", "x"]])
def test_without_slurm_nothing_is_done(argv: list[str], user: User, capsys: pytest.CaptureFixture[str]) -> None:
    assert user.run(*argv) == 2

    assert "is not installed on this machine; run this on a login node" in capsys.readouterr().err


def test_a_job_that_cannot_work_is_refused_before_slurm_is_called(
    user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        ("--nproc-per-node 4 --gpus-per-node 2", "each process needs a GPU of its own"),
        ("--device cpu --gpus-per-node 1", "--device cpu"),
        ("--device cuda --gpus-per-node 0", "--gpus-per-node"),
        ("--nodes 2 --strategy dp", "--strategy dp"),
        ("--nodes 3 --global-batch-size 100", "does not divide among 3 replicas"),
        ("--time 4h", "--time 4h"),
        ("--time 2", "120 s"),
        ("--job-name a_b", "--job-name a_b"),
        ("--container-image a --container-edf b", "both name an image"),
        ("--container-mounts a:/b", "--container-image"),
        ("--container-image a --container-mounts b", "HOST:CONTAINER"),
        ("--partiton x", "--partition"),
        ("--sbatch='a", "close every quote"),
        ("--sbatch=--array=0-3", "--sbatch --array=0-3"),
        ("--sbatch=-a0-3", "--sbatch -a0-3"),
        ("--nodelist n\x0b0", "--nodelist"),
    ]
    for flags, sentence in cases:
        assert user.run(*flags.split(" ")) == 2

        assert sentence in capsys.readouterr().err


def test_a_folder_that_is_not_ours_is_left_alone(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    user.folder.mkdir(parents=True)
    (user.folder / "thesis.tex").touch()

    assert user.submit("--dry-run=json") == 2

    sentences = [problem["sentence"] for problem in json.loads(capsys.readouterr().out)["problems"]]
    assert any("launch.slurm did not make it; choose another --job-name" in sentence for sentence in sentences)
