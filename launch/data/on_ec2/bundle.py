"""The code that a publishing instance runs: this toolkit's, as it is here, without what publishing does not need."""

from functools import cache

from launch.aws.containers import package_files
from launch.core.source.archive import Archive, Member, pack

# What publishing imports and reads of this repository.  Packages are installed by infra/locks/publish.txt, with hashes.
LOCK = "infra/locks/publish.txt"
NEEDED = ("trainer/", "launch/__init__.py", "launch/core/", "launch/aws/", "launch/data/", "infra/")
NOT_NEEDED = (
    "launch/aws/examination/", "infra/locks/", "infra/cloudformation/", "infra/rehearse/", "infra/report/",
    "infra/sbom.cdx.json",
)  # fmt: skip


@cache
def bundle() -> Archive:
    """The code for the instance."""
    every = [file for package in ("trainer", "launch", "infra")
             for file in package_files(package, (".py", ".yaml", ".json", ".txt"))]  # fmt: skip
    return pack(
        Member(name, content)
        for name, content in every
        if name == LOCK or (name.startswith(NEEDED) and not name.startswith(NOT_NEEDED))
    )
