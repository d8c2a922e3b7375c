"""parliament 1.6.4, a linter of policies by AWS's own tables of actions, resources and condition keys, on infra/iam.

Those tables are of the day of its release, and it takes each statement for the whole policy: hence the exceptions.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PYTHON = Path(sys.executable).parent.parent / "parliament/bin/python"  # in a venv of its own: see the Makefile

NEWER = "actions that are newer than the linter's table"
READS = "reads only, of what AWS gives no name to narrow it by, or of jobs and keys of any name"
ONE_OF_SEVERAL = "IAM asks for each resource of the request: each has a statement of its own, with its own conditions"
# Findings by policy, statement and kind, and why they stay.
ARGUED = {
    ("administrator", "DetachTheStacksPolicies", "RESOURCE_STAR"): "any user or role with one of the stack's policies, "
    "which the condition names",
    ("administrator-stack", "TheStacksData", "UNKNOWN_ACTION"): NEWER,
    ("administrator", "ReadBillingViews", "UNKNOWN_ACTION"): NEWER,
    **{
        (name, statement, "UNKNOWN_ACTION"): "service jobs and consumable resources are newer than the linter's: "
        "https://docs.aws.amazon.com/service-authorization/latest/reference/list_batch.html"
        for name, statement in (
            ("administrator", "LookUp"), ("administrator-stack", "TheStacksQueue"),
            ("launcher-queue", "SubmitOwnJobs"), ("reader", "DescribeAll"), ("reader", "LookAtQueuesOfControllers"),
            ("launcher-sagemaker", "EndOwnJobsInQueues"), ("launcher-sagemaker", "LookAtQueues"),
            ("notify", "LookForJobs"),
        )
    },
    ("builder", "StartBuilds", "UNKNOWN_CONDITION_FOR_ACTION"): "newer than the linter's table: "
    "https://docs.aws.amazon.com/codebuild/latest/userguide/action-context-keys.html",
    ("data", "CopyFromTheAccounts", "UNKNOWN_CONDITION_FOR_ACTION"): NEWER,
    ("data", "LookUp", "RESOURCE_STAR"): READS,
    ("data", "FindAmazonLinux", "RESOURCE_MISMATCH"): "AWS's own parameters have no account in their ARN, as below",
    ("publisher", "LookUp", "RESOURCE_STAR"): READS,
    ("doctor", "LookAtAccount", "RESOURCE_STAR"): READS,
    ("launcher", "ChangeOwn", "RESOURCE_STAR"): "by the job's tag: names are AWS's",
    **{
        ("launcher", statement, "RESOURCE_MISMATCH"): ONE_OF_SEVERAL
        for statement in (
            "WithData", "OwnVolumes", "AmazonsImages",
            "AnyNetwork", "InOwnGroups", "OwnNodes", "WithAllowed",
            "NewInterfaces",
        )
    },
    ("launcher", "LookUpOurs", "RESOURCE_MISMATCH"): "AWS's own parameters have no account in their ARN: "
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-public-parameters.html",
    ("launcher", "OwnShells", "RESOURCE_MISMATCH"): "AWS's own example narrows the channel by session, which its table "
    "does not know: https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "getting-started-restrict-access-quickstart.html",
    ("sagemaker", "LogToMlflow", "UNKNOWN_ACTION"): NEWER,
    ("administrator", "TheStack", "UNKNOWN_ACTION"): NEWER,
    ("administrator", "TheStacksMessages", "UNKNOWN_ACTION"): NEWER,
    ("scheduler", "StartTheSweeper", "INVALID_ARN"): "launch.infra fills in the account, which no variable may stand "
    "for: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html",
    ("sweeper", "StartTheSweeper", "INVALID_ARN"): "the same",
    ("sagemaker-vpc", "JoinAllowedNetworks", "RESOURCE_MISMATCH"): ONE_OF_SEVERAL,
    ("sagemaker-vpc", "WithNewInterfaces", "RESOURCE_MISMATCH"): ONE_OF_SEVERAL,
}  # fmt: skip


def findings() -> set[tuple[str, str, str]]:
    """The policy, the statement and the kind of each finding."""
    words = ["-m", "parliament.cli", "--directory", "infra/iam", "--include_policy_extension", "json"]
    words += ["--exclude_pattern", ".*-trust[.]json", "--json"]  # trust policies have no resource
    ended = subprocess.run([PYTHON, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    found = map(json.loads, ended.stdout.splitlines())
    return {(Path(one["location"]["filepath"]).stem, statement(one["location"]), one["issue"]) for one in found}


def statement(location: dict[str, object]) -> str:
    """The Sid of the statement that begins at, or holds, a line."""
    lines = (ROOT / str(location["filepath"])).read_text().splitlines()
    first = int(str(location["line"])) - 1
    # A statement begins a line before its Sid, if it has more than one line.
    text = lines[first] if '"Sid"' in lines[first] else "\n".join(lines[: first + 2])
    return str(re.findall(r'"Sid": "(\w+)"', text)[-1])


@pytest.mark.skipif(not PYTHON.exists(), reason="needs parliament: make .venv/parliament")
def test_a_linter_of_policies_finds_only_what_is_argued() -> None:
    assert findings() == ARGUED.keys()
