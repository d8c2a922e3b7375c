"""The flags of launch.report; --config's keys and help follow from them."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from launch.core.options import WordList


class ReportOptions(BaseModel):
    """What the report is compared with, priced at and written to."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    out: Path = Field(Path("report"), description="folder for report.html, table.csv, overview.png and figures/")
    title: str | None = Field(None, description="stands above the finding on the page")
    baseline: str | None = Field(
        None, description="run to compare with; none: each series' fewest GPUs, and the smallest global batch"
    )
    usd_per_gpu_hour: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="USD a GPU (or CPU rank) costs an hour, for runs without a price"
    )
    format: WordList = Field(("png",), description="of the files in figures/: png, svg, pdf")
