"""Checks of the data's snapshot, and of the keys of the volumes created from it."""

from collections.abc import Iterator

from launch.aws.examination.case import Verdict, missing, ok, warning
from launch.aws.examination.permissions import use_of_key
from launch.aws.names import parse_s3
from launch.ec2.examination import shared
from launch.ec2.examination.shared import Ec2Case

PUBLISH = "python -m launch.data publish FOLDER --name NAME (infra/data.md); or --data-s3 s3://BUCKET/FOLDER"

GRANTED_TO_SPOT = ("Decrypt", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "CreateGrant",
                   "DescribeKey", "ReEncryptFrom", "ReEncryptTo")  # fmt: skip
# Name -> offset in a volume, and magic number there.  ext4: Documentation/filesystems/ext4/super.rst; XFS: xfs_sb;
# a partition table begins with GPT's own magic in the second sector, or ends the first one with 55 AA.
_MAGIC = {"ext4": (1080, b"\x53\xef"), "xfs": (0, b"XFSB"), "gpt": (512, b"EFI PART"), "mbr": (510, b"\x55\xaa")}


def snapshot(case: Ec2Case) -> Iterator[Verdict]:
    """State and size; launch.ec2 finds it by its tag."""
    found = shared.snapshot(case)
    if found is not None:
        yield ok(f"{found.id}, {found.gib} GiB, for --dataset {case.job.train.dataset}")


def file_system(case: Ec2Case) -> Iterator[Verdict]:
    """The file system in the first block, which boot.sh must be able to mount.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-accessing-snapshot.html: 0.003 USD per thousand blocks read.
    """
    found = shared.snapshot(case)
    if found is None:
        return
    listed = {"SnapshotId": found.id, "StartingBlockIndex": 0, "MaxResults": 100}
    blocks = case.aws.call("ebs", "ListSnapshotBlocks", listed).get("Blocks", ())
    first = next((block for block in blocks if block["BlockIndex"] == 0), None)
    if first is None:
        yield missing(f"{found.id} has an empty first block, so there is no file system on it", PUBLISH)
        return
    token = {"SnapshotId": found.id, "BlockIndex": 0, "BlockToken": first["BlockToken"]}
    yield _mountable(found.id, case.aws.call("ebs", "GetSnapshotBlock", token)["BlockData"].read())


def _mountable(snapshot_id: str, block: bytes) -> Verdict:
    kind = kind_of(block)
    if kind in ("ext4", "xfs"):
        return ok(kind)
    if kind in ("gpt", "mbr"):
        return warning(f"{snapshot_id} has a partition table; nodes mount its first partition", PUBLISH)
    return missing(f"{snapshot_id} does not begin with a file system that nodes can mount (ext4 or XFS)", PUBLISH)


def kind_of(block: bytes) -> str:
    """ext4 (or ext2, ext3), xfs, gpt, mbr, or "" for anything else."""
    return next((name for name, (at, magic) in _MAGIC.items() if block[at : at + len(magic)] == magic), "")


def in_s3(case: Ec2Case) -> Iterator[Verdict]:
    """Whether any object exists under --data-s3."""
    place = parse_s3(case.resolved.options.data_s3) if case.resolved.options.data_s3 else None
    if place is None:
        return
    bucket, prefix = place.bucket, place.key
    found = case.aws.call("s3", "ListObjectsV2", {"Bucket": bucket, "Prefix": prefix, "MaxKeys": 1})
    if found.get("KeyCount"):
        yield ok(f"s3://{bucket}/{prefix}")
    else:
        yield missing(f"there is nothing under s3://{bucket}/{prefix}", f"aws s3 sync FOLDER s3://{bucket}/{prefix}")


def default_key(case: Ec2Case) -> Iterator[Verdict]:
    """The key of new volumes.  Without permission for the launcher to use it, nodes end as soon as they start.

    https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html
    """
    key = str(case.aws.call("ec2", "GetEbsDefaultKmsKeyId")["KmsKeyId"])
    if key == "alias/aws/ebs":
        yield ok("new volumes: AWS's own key")
    else:
        yield from use_of_key(case, key, "new volumes")
        yield from _spots_use_of_key(case, key, "new volumes")


def snapshots_key(case: Ec2Case) -> Iterator[Verdict]:
    """The key of the snapshot, if it belongs to another account."""
    found = shared.snapshot(case)
    if found is None:
        return
    (row,) = case.aws.pages("ec2", "DescribeSnapshots", "Snapshots", {"SnapshotIds": [found.id]})
    key = row.get("KmsKeyId") if row.get("Encrypted") else None
    if key is None:
        yield ok(f"{found.id} is not encrypted; volumes made from it are")
        return
    yield from use_of_key(case, key, found.id)
    yield from _spots_use_of_key(case, key, found.id)


def _spots_use_of_key(case: Ec2Case, key: str, what: str) -> Iterator[Verdict]:
    """The spot role's grant on a customer-managed key: without it spot nodes end as soon as they start.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
    """
    if not case.resolved.options.spot or key.startswith("alias/aws/"):
        return
    described = case.aws.call("kms", "DescribeKey", {"KeyId": key})["KeyMetadata"]
    if described.get("KeyManager") == "AWS":
        return
    role = f"arn:aws:iam::{case.account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    grants = case.aws.pages("kms", "ListGrants", "Grants", {"KeyId": described["Arn"]})
    if any(grant.get("GranteePrincipal") == role for grant in grants):
        yield ok(f"{what}: spot's role has a grant on the key")
        return
    operations = " ".join(GRANTED_TO_SPOT)
    make = f"aws kms create-grant --region {case.region} --key-id {described['Arn']} --grantee-principal {role}"
    text = (
        f"{what}: AWSServiceRoleForEC2Spot has no grant on your key {key}; unless its policy allows it, spot nodes end"
    )
    yield warning(f"{text} as they start", f"{make} --operations {operations}")
