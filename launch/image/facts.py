"""What must be known before an image is built and pushed."""

from dataclasses import dataclass

from launch.image.context import Context
from launch.image.options import Builder
from trainer.errors import TrainerError

# In the tag that notes an image's base: trainer-CONTENT-on-DIGEST.
BUILT_ON = "-on-"


def short(digest: str) -> str:
    """As much of a digest as a tag has."""
    return digest.removeprefix("sha256:")[:12]


@dataclass(frozen=True)
class Facts:
    """account: "" if AWS could not be asked; there: the digest of the image with this content, "" for none; alias:
    the digest that the moving tag names; context: what CodeBuild would get, None if it is not to build; uploaded:
    whether that is in the bucket; base: the digest that the base's name stands for now, "" if that is not known;
    marks: all tags of the image with this content.
    """

    builder: Builder | None
    region: str = ""
    account: str = ""
    there: str = ""
    alias: str = ""
    context: Context | None = None
    uploaded: bool = False
    base: str = ""
    marks: tuple[str, ...] = ()

    @property
    def base_moved(self) -> bool:
        """Whether the image was built on another base of this name; False if nobody noted on which."""
        noted = [tag for tag in self.marks if BUILT_ON in tag]
        return bool(self.base and noted) and not any(tag.endswith(short(self.base)) for tag in noted)

    problems: tuple[TrainerError, ...] = ()
