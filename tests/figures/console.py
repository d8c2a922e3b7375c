"""Takes tests/bench/console.png, a picture of the console beside jobs on an embedded AWS:

    python -m tests.figures.console

Needs chromium.
"""

import os
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests import needs
from tests.conftest import ROOT
from tests.launch.console.served import served

TARGET = ROOT / "tests" / "bench" / "console.png"
WIDTH, HEIGHT, SCALE = 1280, 575, 1.25  # CSS pixels, down to the last job


def draw(target: Path) -> None:
    """Writes the page of all jobs as a picture to `target`."""
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_DEFAULT_REGION="us-east-1")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as console, sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=needs.chromium_path(), args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        page.goto(console.address)
        page.get_by_text("forgotten").wait_for()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    draw(TARGET)
