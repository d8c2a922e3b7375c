"""launch.sagemaker ssh: the command for a shell in a container, and why there is none."""

import pytest

from launch.rehearse.aws.sagemaker.changes import complete
from tests.launch.sagemaker.known import NAME
from tests.launch.sagemaker.world import Stage


def test_a_running_job_has_a_shell_on_each_instance(stage: Stage) -> None:
    """The target is as on https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html"""
    stage.started(remote_debug=True, nodes=2)
    assert stage.type("ssh", NAME, "--node", "2", "--print") == 0
    target = f"sagemaker-training-job:{NAME}_algo-2"
    assert stage.said[-1] == f"aws ssm start-session --target {target} --region us-east-1"


def test_without_a_shell_the_user_learns_why(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    made = stage.started()
    assert stage.type("ssh", NAME) == 2
    said = capsys.readouterr().err
    assert f"job {NAME} was started without --remote-debug; turn it on while it trains:" in said
    # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateTrainingJob.html, RemoteDebugConfig
    assert f"update-training-job --training-job-name {NAME} --remote-debug-config EnableRemoteDebug=true" in said
    complete(made)
    assert stage.type("ssh", NAME) == 2
    assert f"job {NAME} has ended" in capsys.readouterr().err
    stage.started("other", remote_debug=True)
    assert stage.type("ssh", "other", "--node", "2") == 2
    assert "--node 2: other has 1, numbered from 1." in capsys.readouterr().err
