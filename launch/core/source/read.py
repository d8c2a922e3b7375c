"""The archive of a listing: every file is read once, looked through for keys, and packed as it was read."""

from collections.abc import Iterator

from launch.core.source.archive import Member
from launch.core.source.keys import check_name, check_text
from launch.core.source.walk import MOST_BYTES, File, Listing, check_size, unreadable
from trainer.files import read_regular


def read_files(listing: Listing) -> tuple[Member, ...]:
    """The files with their contents.  Raises SettingsError for one that looks like a key or cannot be read.

    What has vanished since it was listed is left out: an editor's copy, say.
    """
    for file in listing.files:  # before anything is read: the names are quicker
        check_name(file.name)
    members = tuple(_read(listing))
    # A file may have grown meanwhile.
    check_size(listing.top, [File(one.name, len(one.content), one.is_program) for one in members])
    return members


def _read(listing: Listing) -> Iterator[Member]:
    for file in listing.files:
        if file.link:
            yield Member(file.name, link=file.link)
            continue
        try:
            content = read_regular(listing.top / file.name, MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unreadable(listing.top / file.name, error.strerror) from None
        check_text(file.name, content)
        yield Member(file.name, content, file.is_program)
