"""The page of a rehearsal, in a browser: a file, without a network."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from launch.rehearse.receipt.page import LINE_CHARACTERS, LOG_CHARACTERS, as_html, write
from launch.rehearse.recording import Epoch, Line
from tests import needs
from tests.launch.rehearse.receipt.receipts import DEAD, FIRST, HOSTILE, RECEIPT, SECOND, THIRD

needs_browser = needs.chromium()
TELEPHONE, SCREEN = {"width": 375, "height": 800}, {"width": 1400, "height": 900}
PAPER = {"width": 794, "height": 1123}  # A4
# The contrast (WCAG 2) of every text with the colour behind it, the faintest first.
CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255).map(
      (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("body *:not(svg *):not(script)")].filter((one) =>
    [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) && one.getClientRects().length);
  return texts.map((one) => {
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), one.textContent.trim().slice(0, 40)];
  }).sort((x, y) => x[0] - y[0]).slice(0, 3);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=needs.chromium_path(), args=flags)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(replace(RECEIPT, folder=tmp_path_factory.mktemp("job")))


@contextmanager
def opened(browser: Browser, file: Path, **settings: object) -> Iterator[Page]:
    """The page; fails if it asked for anything but itself, or if the browser complained."""
    context = browser.new_context(**{"viewport": SCREEN, "offline": True, **settings})
    page, asked, said = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    yield page
    context.close()
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert said == []


def rows(page: Page, table: str = "#nodes") -> list[list[str]]:
    """The texts of a table's cells."""
    return [row.locator("th, td").all_inner_texts() for row in page.locator(f"{table} tbody tr").all()]


@needs_browser
def test_it_says_what_came_of_the_rehearsal(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        assert page.title() == "Rehearsal of digits-cnn: done"
        assert page.locator("h1").inner_text() == "digits-cnn"
        tiles = dict(tile.inner_text().split("\n", 1) for tile in page.locator(".tile").all())
        assert tiles == {
            "Outcome": "✓ done", "Nodes": "2 3 in total", "Test accuracy, best": "98.3%", "Wall time": "96.0 s",
            "Resources left": "0 of 4 made", "Cost on AWS, about": "0.0570 USD",
        }  # fmt: skip
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("h2").all_inner_texts() == [
            "Timeline", "Replay", "Training", "Nodes and cost", "Resources: 4 made, 4 removed, 0 left",
            "Commands", "Requests: 9 (5 writes, 4 reads)", "Files beside this page", "Differences from AWS",
        ]  # fmt: skip
        assert page.locator("th:not([scope])").count() == 0
        assert page.locator("svg:not([aria-label]):not([aria-labelledby])").count() == 0
        assert page.locator("img:not([alt])").count() == 0
        assert page.locator("a[href='logs/node-0.log']").count() == 1


@needs_browser
def test_its_timeline_has_each_nodes_states_and_the_faults(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        bars = page.locator(".gantt .state").all()
        assert [bar.get_attribute("data-state") for bar in bars] == [
            "boots", "trains", "uploads", "boots", "trains", "boots", "trains"
        ]  # fmt: skip
        assert page.locator(".gantt .phase").count() == 6
        fault = page.locator(".gantt .fault line").get_attribute("x1")
        assert fault == "22.81%"
        assert f"21.9 s node-dies@epoch:1: {SECOND} is dead" in page.locator(".faults").inner_text()


@needs_browser
def test_the_slider_replays_nodes_and_log(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        at_the_end = rows(page)
        assert at_the_end[1] == [SECOND, "off", "1", "1", "1.7584", "1,829", DEAD]
        page.locator("#moment").fill("21.5")
        assert rows(page) == [
            [FIRST, "trains", "0", "1", "1.7584", "1,829", ""],
            [SECOND, "trains", "1", "1", "1.7584", "1,829", ""],
            [THIRD, "", "", "", "", "", ""],
        ]
        assert page.locator("#log li:visible").count() == 4
        assert page.locator("#clock").inner_text() == "21.5 s"
        page.locator("#moment").fill("96")
        assert rows(page) == at_the_end
        assert page.locator("#log li:visible").count() == len(RECEIPT.lines)


@needs_browser
def test_without_scripts_all_facts_are_there(browser: Browser, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as page:
        text = page.locator("main").text_content() or ""
        assert page.locator(".controls").is_hidden()
        assert rows(page)[0][:5] == [FIRST, "off", "0", "2", "0.2210"]
        for line in RECEIPT.lines:
            assert line.text in text
        for fact in ("ec2:RunInstances", "404", "security group", "launch", "172.31.0.5", "0.0294", "docker"):
            assert fact in text
        assert page.locator("#log li:visible").count() == len(RECEIPT.lines)
        page.locator("summary").first.click()
        assert page.get_by_text("98.3%").last.is_visible()


@needs_browser
@pytest.mark.parametrize(("size", "scheme"), [(TELEPHONE, "dark"), (SCREEN, "light")], ids=["telephone", "screen"])
def test_it_fits_and_can_be_read(size: dict[str, int], scheme: str, browser: Browser, file: Path) -> None:
    with opened(browser, file, viewport=size, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        for contrast, text in page.evaluate(CONTRAST):
            assert contrast >= 4.5, text


@needs_browser
def test_on_paper_everything_is_open(browser: Browser, file: Path) -> None:
    with opened(browser, file, viewport=PAPER, color_scheme="dark") as page:
        page.emulate_media(media="print")
        wide = [table.bounding_box() for table in page.locator("table").all()]
        assert max(box["x"] + box["width"] for box in wide if box) <= PAPER["width"]
        assert page.locator(".controls").is_hidden()
        assert page.get_by_role("rowheader", name="ec2:RunInstances").is_visible()


@needs_browser
def test_a_script_in_a_log_line_stays_text(browser: Browser, file: Path) -> None:
    with opened(browser, file) as page:
        assert page.title() == "Rehearsal of digits-cnn: done"
        assert page.locator("#log li.launcher").nth(1).locator("span").inner_text() == HOSTILE
        assert page.locator("img:not([src^='data:image/svg+xml'])").count() == 0


def test_names_are_escaped_wherever_they_stand() -> None:
    hostile = "</script><script>alert(1)</script>"

    page = as_html(
        replace(
            RECEIPT,
            job=hostile, command=hostile, trouble=hostile, made={hostile: 1}, differences=[hostile],
            faults=[(1.0, hostile), (None, hostile)], files={hostile: 1}, commands=[(hostile, 1)],
            nodes=[replace(RECEIPT.nodes[0], name=hostile, how=hostile)],
            changes=[replace(RECEIPT.changes[0], node=hostile, state=hostile)],
        )
    )  # fmt: skip

    assert page.count("<script") == 2  # the record and the script
    assert "alert(1)</" not in page


def test_a_long_log_is_cut_and_the_page_says_so() -> None:
    lines = [Line(float(number), "launcher", f"line {number} " + 50 * "<") for number in range(5000)]
    lines[0] = Line(0.0, "launcher", 10_000 * "x")

    page = as_html(replace(RECEIPT, lines=lines))

    assert "lines in the middle of this log are left out" in page
    assert f"… and {10_000 - LINE_CHARACTERS:,} more characters" in page
    assert "line 1 " in page
    assert "line 4999 " in page
    assert "line 2500 " not in page
    assert LOG_CHARACTERS < len(page.encode()) < 400_000


def test_a_rehearsal_in_which_nothing_happened_has_a_page() -> None:
    page = as_html(
        replace(
            RECEIPT, code=2, seconds=dict.fromkeys(RECEIPT.seconds, 0.0), faults=[], requests=[], made={}, nodes=[],
            lines=[], changes=[], epochs=[], files={}, differences=[], trouble="no room",
        )
    )  # fmt: skip

    assert "the rehearsal itself failed" in page
    assert "No epoch was trained." in page
    assert "No node was started." in page


def test_figures_that_are_missing_or_no_numbers_leave_gaps() -> None:
    torn = [Epoch(1.0, {"epoch": 1}), Epoch(2.0, {"epoch": 2, "train_loss": float("nan"), "train_top1": 0.5})]

    page = as_html(replace(RECEIPT, epochs=torn))

    assert "<dt>Test accuracy, best</dt><dd>none</dd>" in page
    assert "nan" not in page.partition('<table id="nodes">')[0]


@needs_browser
def test_its_charts_are_pictures_that_are_also_told_in_words(browser: Browser, file: Path) -> None:
    with opened(browser, file, java_script_enabled=False) as page:
        images = page.locator(".figures img").all()

        assert [image.evaluate("(one) => one.complete && one.naturalWidth > 200") for image in images] == [True, True]
        assert images[1].get_attribute("alt") == (
            "Accuracy by epoch. accuracy (%) over epoch. training: 41.1 at 1, 94.2 at 2; test: 85.6 at 1, 98.3 at 2."
        )


def test_a_script_has_a_column_for_each_of_its_metrics() -> None:
    told = [Epoch(1.0, {"step": 10, "loss": 0.5}, 1), Epoch(2.0, {"step": 20, "loss": 0.25, "acc": 0.875}, 2)]

    page = as_html(replace(RECEIPT, epochs=told))

    assert '<th scope="col" class="n">step</th><th scope="col" class="n">loss</th>' in page
    assert '<td class="n">20</td><td class="n">0.25</td><td class="n">0.875</td>' in page
    assert "Test accuracy, best" not in page
