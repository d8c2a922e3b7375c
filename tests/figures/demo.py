"""Takes tests/bench/demo.png, the picture in README, of the receipt of a demo:

    make demo
    python -m tests.figures.demo runs/JOB

JOB is the name that the demo prints.  Needs chromium.
"""

import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests import needs
from tests.conftest import ROOT

TARGET = ROOT / "tests" / "bench" / "demo.png"
WIDTH, HEIGHT, SCALE = 1160, 710, 1.25  # CSS pixels, down to the times of the phases


def draw(run: Path, target: Path) -> None:
    """Writes the top of `run`/receipt.html as a picture to `target`."""
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=needs.chromium_path(), args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        page.goto((run / "receipt.html").resolve().as_uri())
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]), TARGET)
