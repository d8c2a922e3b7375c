"""Secrets on the nodes: they reach the training and nothing else."""

import hashlib
from pathlib import Path

import pytest

from tests.launch.ec2.boot.job import (
    SECRETS,
    file_on,
    get,
    image_of,
    keys,
    log_of,
    needs_nodes,
    put_cluster,
    record,
    user_data,
    wait_for,
)
from tests.launch.ec2.nodes import Region, text_of

pytestmark = pytest.mark.timeout(180)  # a boot starts dozens of processes


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
@pytest.mark.slow("a secret that cannot be read, or is of bytes, ends the node before it trains")
@pytest.mark.parametrize(
    ("reference", "words"),
    [("ssm:/ddp-toolkit/none", "ParameterNotFound"), ("secretsmanager:ddp-toolkit/bytes", "store it as text")],
)
def test_a_secret_that_is_no_text_ends_the_node_before_it_trains(here: Region, reference: str, words: str) -> None:
    """AWS's command line says None where there is no text."""
    here.client("secretsmanager").create_secret(Name="ddp-toolkit/bytes", SecretBinary=b"\xff planted")
    node = here.launch(user_data(SECRETS=[f"KEY={reference}"]))
    put_cluster(here, node)

    left = record(here, node)

    assert (left["code"], left["step"]) == (27, "secret")
    assert reference in left["reason"]
    assert not any(call[0] == "run" for call in node.docker_calls)
    log = get(here, f"boot/{node.instance}.log")
    assert words in log
    assert "planted" not in log


def keep_secrets(here: Region, value: str) -> None:
    """Both of SECRETS have this value."""
    here.client("ssm").put_parameter(Name="/ddp-toolkit/wandb", Type="SecureString", Value=value)
    here.client("secretsmanager").create_secret(Name="ddp-toolkit/mlflow", SecretString=value)
