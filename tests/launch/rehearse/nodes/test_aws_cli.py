"""launch.rehearse.nodes.ec2.node.check_aws_cli: nodes without the AWS CLI would boot in silence."""

import sys
from pathlib import Path

import pytest

from launch.core.errors import NotSetUp
from launch.rehearse.nodes.ec2.node import check_aws_cli


def test_a_python_whose_nodes_could_not_run_the_aws_cli_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named awscli' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(NotSetUp, match=r"No module named awscli\); run pip install .*\[rehearse\]"):
        check_aws_cli()


def test_a_program_that_is_found_only_by_the_users_environment_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awscli").mkdir()
    (tmp_path / "awscli/__main__.py").write_text("raise SystemExit(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    check_aws_cli()
