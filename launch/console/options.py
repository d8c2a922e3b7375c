"""Options of launch.console; flags and help are derived from them."""

from pathlib import Path

from pydantic import Field

from launch.core.options import Options, WordList


class ConsoleOptions(Options):
    """Where the page is, and which jobs are on it."""

    region: WordList = Field((), description="AWS regions to show (default: the one in your AWS configuration)")
    all_regions: bool = Field(False, description="show every region that is enabled for the account")
    runs: Path = Field(
        Path("runs"), description="folder with runs of this machine", json_schema_extra={"metavar": "FOLDER"}
    )
    port: int = Field(0, ge=0, le=65535, description="port on this machine (default: a free one)")
    open: bool = Field(True, description="open the page in a browser")
    idle_minutes: float = Field(60, gt=0, description="end after so many minutes without a page in sight")
