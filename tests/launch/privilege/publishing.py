"""A publisher who may launch, too, and an instance with the role of infra/iam/publisher.json: every use of both."""

from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launch.aws.client import Aws
from launch.data import upload
from tests.launch.data.desk import write_prepared
from tests.launch.data.on_ec2.desk import NAME, SOURCE, Ec2Desk, opened
from tests.launch.faults import Died, Faults, died_after, injected
from tests.launch.privilege.enforced import Watch, enforced


@cache
def by_instances() -> tuple[Watch, Watch]:
    """The calls of who starts an instance, and those of the instance; fails where a command does."""
    with (
        TemporaryDirectory() as folder,
        opened(Path(folder)) as desk,
        pytest.MonkeyPatch.context() as patch,
        enforced(desk.account, "data-on-ec2") as mine,
    ):
        patch.setattr(upload, "PART", 5 * 2**20)  # the least that S3 takes
        replace_source(desk, seed=0)
        with enforced(desk.account, "publisher") as its:
            desk.node_aws = cache(partial(Aws, policy="publisher"))
            for service in ("sts", "s3", "ec2", "ebs", "sagemaker"):  # with its own keys, from here on
                desk.node_aws("us-east-1").client(service)
        desk.make_aws = cache(partial(Aws, policy="data"))
        with injected(Faults()) as faults:
            for operation in ("UploadPart", "PutSnapshotBlock"):
                faults.on(operation, died_after())
                with pytest.raises(Died):
                    desk.publish_s3()
        for words in (("--dry-run",), ()):
            assert desk.publish_s3(*words) == 0, desk.text
        replace_source(desk, seed=1)
        assert desk.publish_s3("--replace") == 0, desk.text
        assert desk.type("stop", NAME) == 0, desk.text
        mine.typed = desk.typed
        return mine, its


def replace_source(desk: Ec2Desk, seed: int) -> None:
    write_prepared(desk.folder, (6_000_000, 40_000), seed=seed)
    for path in desk.folder.rglob("*.*"):
        name = path.relative_to(desk.folder).as_posix()
        desk.account.put(desk.account.bucket, f"{SOURCE}/{name}", path.read_bytes())
