"""Whether job.json is still the one that a job's nodes were started with.  Pure.

Launchers share the bucket, so each may rewrite the job.json of every job; what replaces a lost node would then run the
image of whoever wrote it.  A tag holds the digest of what decides which code runs on which data.  Tags are given when
something is made and cannot be changed by another launcher: infra/iam/launcher.json.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from launch.core.errors import AwsError
from launch.ec2.fleet import Fleet
from trainer.errors import TrainerError

DECIDES = ("job", "backend", "region", "where", "train", "image", "ami", "snapshot")

CHANGED = "Changed"  # our code for a job.json that is another

Spec = Mapping[str, Any]


def digest(spec: Spec) -> str:
    """Of what in job.json decides which code runs on which data: not of its times and prices."""
    text = json.dumps({key: spec.get(key) for key in DECIDES}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_changed(error: TrainerError) -> bool:
    """Whether it says so; asking again does not help."""
    return isinstance(error, AwsError) and error.aws_code == CHANGED


def unfinished(spec: Spec | None, fleet: Fleet, job: str, known: str) -> Spec:
    """job.json of a start that has not ended, by which lost nodes get the same AMI, image and snapshot.

    known: its digest, where this launcher started the job; else the tags of what the job has vouch for it.  Where
    nothing is left that could, nothing has to be the same: empty.  Raises AwsError for one that was changed.
    """
    if spec is None or "ended" in spec:
        return {}
    digests = {known} if known else fleet.specs.get(job, frozenset())
    if digests and digests != {digest(spec)}:
        raise AwsError(
            f"job.json of job {job} is not the one it was started with: somebody changed it, or stopped the job and "
            "started another with that name.  No node is started from it.",
            CHANGED,
        )
    return spec if digests or fleet.living else {}
