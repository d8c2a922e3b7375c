"""The flags of launch.report; --config's keys and help follow from them."""

from pathlib import Path

from pydantic import Field

from launch.core.options import Options, Place, WordList


class ReportOptions(Options):
    """Where the report is written, its baseline and its price."""

    out: Path = Field(Path("report"), description="folder for report.html, table.csv, overview.png and figures/")
    title: str | None = Field(None, description="title above the finding on the page")
    baseline: Place | None = Field(
        None, description="run to compare with (default: a series' fewest GPUs, and the smallest global batch)"
    )
    usd_per_gpu_hour: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="USD per hour of a GPU (or CPU rank), for runs without a price"
    )
    target_accuracy: float | None = Field(
        None, gt=0, le=100, allow_inf_nan=False, description="eval accuracy in %: report the time and price to reach it"
    )
    format: WordList = Field(("png",), description="file formats of figures/: png, svg, pdf")
