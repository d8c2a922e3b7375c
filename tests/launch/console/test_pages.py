"""The console's pages in a browser, beside two jobs, a leak, a sweep and a rehearsal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests import needs
from tests.launch.console.served import Served, log, run_in, served

pytestmark = [needs.chromium(), pytest.mark.slow("the console's pages work in a browser")]
PHONE, SCREEN = ViewportSize(width=390, height=800), ViewportSize(width=1400, height=900)
JOB, LEAKS = "/job?on=ec2&name=one&region=us-east-1", "/leaks"
# Hides the page, or shows it again.
TURN = """(hidden) => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
ADDRESSES = ["/", JOB, LEAKS, "/commands", "/compare?run=sweep/a&run=sweep/b", "/plan?on=ec2&epochs=2"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's own does not work for root
        browser = playwright.chromium.launch(executable_path=needs.chromium_path(), args=flags)
        yield browser
        browser.close()


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as opened:
        yield opened


@contextmanager
def opened(browser: Browser, console: Served, allowed: str = "\n", **settings: object) -> Iterator[Page]:
    """The page of all jobs; fails if the browser complained of anything but what is `allowed`."""
    context = browser.new_context(**{"viewport": SCREEN, **settings})
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.clock.install()
    page.goto(console.address)
    page.locator("#jobs tbody tr").nth(6).wait_for()
    yield page
    context.close()
    assert [one for one in said if allowed not in one] == []


def go(page: Page, address: str) -> None:
    page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/")[2] + address)
    page.wait_for_load_state("networkidle")


def test_jobs_are_sorted_and_filtered_with_the_keyboard_and_a_hidden_page_asks_for_nothing(
    browser: Browser, console: Served
) -> None:
    with opened(browser, console) as page:
        names, asked = page.locator("#jobs tbody th"), list[str]()
        assert page.locator("#summary").inner_text() == "7 jobs, 3 running, 4.91 USD per hour now"
        page.locator("[data-sort=name] button").press("Enter")
        page.locator("[data-sort=name] button").press("Enter")
        assert names.all_inner_texts() == ["forgotten", "one", "rehearsed", "sweep/a", "sweep/b", "two", "yesterday"]
        assert page.locator("[data-sort=name]").get_attribute("aria-sort") == "ascending"
        page.locator("[name=status]").select_option("running")
        page.locator("[name=q]").fill("o")
        page.reload()  # the address has it all
        names.nth(2).wait_for()
        assert names.all_inner_texts() == ["forgotten", "one", "two"]

        page.wait_for_load_state("networkidle")
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate(TURN, True)
        page.clock.run_for("10:00")
        page.wait_for_timeout(500)  # for what it would have asked for
        assert asked == []
        page.get_by_role("link", name="one").focus()
        before = page.locator("#jobs").inner_text()
        page.evaluate(TURN, False)
        page.wait_for_function("(before) => document.querySelector('#jobs').innerText !== before", arg=before)
        page.keyboard.press("Enter")  # the focus stays where it is while times change
        page.wait_for_url("**/job?*")


def test_a_job_shows_its_curves_and_a_window_of_its_log_which_is_searched(browser: Browser, console: Served) -> None:
    log(console.account, "one", [f"line {number}" for number in range(1200)], node=1)
    with opened(browser, console, allowed="400 (Bad Request)") as page:
        go(page, JOB)
        lines = page.locator("#log li")
        page.get_by_text("line 1199", exact=True).wait_for()
        assert lines.count() == 500
        assert page.locator(".gantt .phase").count() == 5
        assert page.locator(".phases div").last.inner_text().startswith("train\n88 min ")
        assert page.locator("#curves img").count() == 2
        assert "Loss" in (page.locator("#curves img").first.get_attribute("alt") or "")
        page.get_by_role("button", name="Earlier lines").click()
        page.get_by_text("line 250", exact=True).wait_for()
        assert lines.count() == 1000
        page.locator("#search input").fill("LOSS is")
        page.get_by_text("1 of 1203 lines").wait_for()
        assert lines.count() == 1

        page.route("**/data/job?*", lambda route: route.fulfill(status=400, json={"error": "it has expired"}))
        page.clock.run_for("01:00")
        page.get_by_text("it has expired").wait_for()
        page.locator("#search input").fill("line 77")
        page.clock.run_for(1000)
        page.get_by_text("11 of 1203 lines").wait_for()
        assert page.get_by_text("it has expired").is_visible()  # whatever else the page gets


def test_no_name_and_no_line_breaks_into_a_page_and_a_receipt_is_apart(browser: Browser, console: Served) -> None:
    name = "<img src=x onerror=document.title=1>"
    run_in(console.world.runs / name, [])
    with opened(browser, console) as page:
        page.get_by_role("link", name=name).click()
        page.wait_for_url("**/job?*")
        assert page.locator("h1").inner_text() == name
        go(page, JOB)
        page.get_by_text("broken in").wait_for()
        assert page.title() == "one · console"  # and not what a line of the log would make of it
        assert page.locator("#log img, #log script, h1 img").count() == 0
        go(page, "/job?on=here&name=rehearsed")
        with page.expect_popup() as found:
            page.get_by_role("link", name="receipt").click()
        receipt = found.value
        receipt.get_by_role("button", name="Play").click()  # its script runs
        assert receipt.title() == "Rehearsal of digits-cnn: done"
        assert receipt.evaluate("origin") == "null"


def test_a_leak_is_removed_after_a_yes_by_the_command_that_is_shown(browser: Browser, console: Served) -> None:
    with opened(browser, console) as page:
        go(page, LEAKS)
        page.get_by_role("button", name="Remove forgotten").click()
        command = "python -m launch.ec2 stop forgotten --region us-east-1"
        assert page.locator("dialog code").inner_text() == command
        page.get_by_role("button", name="No", exact=True).click()
        assert console.typed == []
        page.get_by_role("button", name="Remove forgotten").click()
        page.get_by_role("button", name="Yes").click()
        page.wait_for_url("**/commands?id=0")
        page.locator("pre.log").wait_for()
        assert [f"python {typed}" for typed in console.typed] == [command]
        go(page, LEAKS)
        page.get_by_text("No leaks.").wait_for()


def test_the_plan_follows_what_is_typed_and_starts_after_a_yes(browser: Browser, console: Served) -> None:
    with opened(browser, console) as page:
        go(page, "/plan?on=ec2&dataset=cifar10")
        page.get_by_text("About ").wait_for()
        one_node = page.locator("#price").inner_text()
        page.locator("#set-nodes").fill("2")
        page.clock.run_for(1000)
        page.locator("#command", has_text="--nodes 2").wait_for()
        assert page.locator("#price").inner_text() != one_node
        assert page.url.endswith("/plan?on=ec2&dataset=cifar10&nodes=2")
        page.get_by_role("button", name="Start").click()
        assert page.locator("#sure-what").inner_text().startswith("Start this job, for about ")
        command = page.locator("#sure-command").inner_text()
        page.get_by_role("button", name="Yes").click()
        page.wait_for_url("**/commands?id=0")
        assert [f"python {typed}" for typed in console.typed] == [command]
        go(page, "/")
        page.get_by_text("8 jobs, 4 running").wait_for()


def test_a_wrong_setting_is_marked_and_cannot_be_started(browser: Browser, console: Served) -> None:
    with opened(browser, console, allowed="400 (Bad Request)") as page:
        go(page, "/plan?on=ec2&nodes=0")
        page.get_by_text("--nodes 0: must be greater than or equal to 1").wait_for()
        assert page.locator("[aria-invalid=true]").get_attribute("name") == "nodes"
        assert page.get_by_role("button", name="Start").is_disabled()


def test_ticked_runs_are_compared(browser: Browser, console: Served) -> None:
    with opened(browser, console) as page:
        go(page, "/compare")
        page.locator("#filter").fill("digits local")  # not the rehearsal
        page.locator("#all").check()
        page.get_by_text("2 of 3 ticked").wait_for()
        page.get_by_role("button", name="Compare").press("Enter")
        page.get_by_text("The same as a file").wait_for()
        assert sorted(page.url.partition("?")[2].split("&")) == ["run=sweep%2Fa", "run=sweep%2Fb"]
        assert page.locator("#choose :checked").count() == 2


@needs.module("axe_playwright_python")
def test_axe_finds_nothing_in_any_light_and_no_page_is_wider_than_a_phone(browser: Browser, console: Served) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with opened(browser, console) as page:
        for address in ADDRESSES:
            page.emulate_media(color_scheme="light")
            page.set_viewport_size(SCREEN)
            go(page, address)
            light = Axe().run(page)
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size(PHONE)
            dark = Axe().run(page, options={"runOnly": ["color-contrast"]})
            assert [light.violations_count, dark.violations_count] == [0, 0], (
                f"{address}: {light.generate_report()} {dark.generate_report()}"
            )
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
