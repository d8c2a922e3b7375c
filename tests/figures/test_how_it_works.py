"""README's figure shows the modules that there are."""

import re
from pathlib import Path

from tests.figures import how_it_works


def words(figure: Path) -> list[str]:
    """The text in an SVG, in order."""
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.read_text())


def test_the_figure_fits_the_code(tmp_path: Path) -> None:
    how_it_works.draw(tmp_path / "now.svg")

    assert words(tmp_path / "now.svg") == words(how_it_works.TARGET), "run python -m tests.figures.how_it_works"


def test_every_backend_has_settings_and_a_plan() -> None:
    for folder, stages in how_it_works.structure().items():
        assert stages["settings"], folder
        assert stages["plan"], folder
