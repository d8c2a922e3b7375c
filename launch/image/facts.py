"""What launch.image must know before it builds and pushes."""

from dataclasses import dataclass

from launch.image.context import Context
from launch.image.options import Builder
from trainer.errors import TrainerError

# In the tag that records an image's base: trainer-CONTENT-on-DIGEST.
BUILT_ON = "-on-"


def short(digest: str) -> str:
    """The part of a digest that such a tag holds."""
    return digest.removeprefix("sha256:")[:12]


@dataclass(frozen=True)
class Facts:
    """What AWS and this machine say.  Digests and account are "" where there is none or it could not be looked up.

    builder: None if the requested one is not installed; image: digest of the image with this content; tags: its tags;
    alias: digest under the moving tag; context: the build context where CodeBuild builds; is_uploaded: whether the
    bucket has that; base: digest of the base's tag now.
    """

    builder: Builder | None
    region: str = ""
    account: str = ""
    image: str = ""
    tags: tuple[str, ...] = ()
    alias: str = ""
    context: Context | None = None
    is_uploaded: bool = False
    base: str = ""
    problems: tuple[TrainerError, ...] = ()

    @property
    def base_moved(self) -> bool:
        """Whether the image was built on another base of this name; False if its base was not recorded."""
        records = [tag for tag in self.tags if BUILT_ON in tag]
        return bool(self.base and records) and not any(tag.endswith(short(self.base)) for tag in records)
