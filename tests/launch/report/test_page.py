"""The page of a report, in a browser as somebody opens it: a file, without a network."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests import needs
from tests.launch.report.conftest import HOSTILE, Made

pytestmark = needs.chromium()
TELEPHONE, SCREEN = {"width": 375, "height": 800}, {"width": 1400, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work for root.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=needs.chromium_path(), args=flags)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, made: Made, **settings: object) -> Iterator[Page]:
    """The page; fails if it asked for anything but itself, or if the browser complained."""
    context = browser.new_context(**{"viewport": SCREEN, "offline": True, **settings})
    page, asked, said = context.new_page(), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    file = (made.out / "report.html").as_uri()
    page.goto(file)
    yield page
    context.close()
    assert [url for url in asked if not url.startswith("data:")] == [file]
    assert said == []


def test_it_says_the_finding_first_and_has_all_sections(browser: Browser, made: Made) -> None:
    with opened(browser, made) as page:
        assert page.locator("h1").inner_text() == "8 GPUs train 4.71× as fast as 1 GPU: 59% efficiency"  # noqa: RUF001
        assert dict(tile.inner_text().split("\n", 1) for tile in page.locator(".tile").all()) == {
            "Runs": "11 9 done", "Speedup": "4.71× on 8 GPUs", "Efficiency": "59% of ideal",  # noqa: RUF001
            "Serial part": "45.1%", "Test accuracy, best": "90.0%",
            "Cheapest epoch": "0.00550 USD",
        }  # fmt: skip
        assert page.locator("h2").all_inner_texts() == [
            "Scaling", "Where the time goes", "What is learnt", "Large batches", "Cost", "Runs", "How it is reckoned",
        ]  # fmt: skip
        assert page.locator("th:not([scope])").count() == 0
        assert page.locator(".findings li").first.inner_text().startswith("Best series, ddp, 100 per GPU: 1,000")


def test_every_picture_is_seen_and_described(browser: Browser, made: Made) -> None:
    with opened(browser, made) as page:
        pictures = page.locator("figure img")
        assert pictures.count() == 18
        assert all(pictures.evaluate_all("all => all.map((one) => one.complete && one.naturalWidth > 200)"))
        described = page.locator("#speedup img").get_attribute("alt") or ""
        assert described.startswith("Speedup. speedup over one GPU (×) over GPUs. ddp, 100 per GPU: 1.00 at 1,")  # noqa: RUF001


def test_its_tables_have_the_numbers_and_why_runs_failed(browser: Browser, made: Made) -> None:
    with opened(browser, made) as page:

        def rows(name: str) -> list[list[str]]:
            return [row.locator("th, td").all_inner_texts() for row in page.locator(f"#{name} tbody tr").all()]

        assert rows("series")[3] == [
            "ddp, 100 per GPU", "weak", "8", "1", "4,706", "2.13", "4.71", "59%", "45.1%", ""
        ]  # fmt: skip
        assert ["oom", "failed", "rank 3 ran out of GPU memory; lower --batch-size.", "–", "0", "–"] in rows("runs")  # noqa: RUF001
        assert rows("batches")[0] == ["sgd", "100", "1", "90.0%", "baseline"]
        assert rows("costs")[0][3:] == ["0.00550", "0.0270", "0.000300"]


def test_a_script_in_a_name_stays_text(browser: Browser, made: Made) -> None:
    with opened(browser, made) as page:
        assert page.title() == f"Our {HOSTILE}"
        assert page.locator("#runs tbody tr", has_text="alert(1)").locator("th").inner_text() == HOSTILE
        assert page.locator("script, [onerror]").count() == 0


@pytest.mark.parametrize(("size", "scheme"), [(TELEPHONE, "light"), (SCREEN, "dark")], ids=["telephone", "screen"])
def test_it_fits(size: dict[str, int], scheme: str, browser: Browser, made: Made) -> None:
    with opened(browser, made, viewport=size, color_scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert page.locator("#speedup img").bounding_box()["width"] > 300  # type: ignore[index]
