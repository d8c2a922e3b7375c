"""Whatever a stranger calls a job, a file, a class or a run: every template and page shows it, and none obeys it.

Names are a list of known attacks and mixtures of them, the same in each run.
"""

import csv
import io
import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest

from launch.core import templates
from launch.core.plan import as_json, as_text
from launch.core.templates import COMMENT, MARK
from launch.core.terminal import harmless, say, table
from launch.core.training.classifier import Classifier
from launch.core.training.script import Script
from launch.data.source import not_in_s3
from launch.ec2 import requests
from launch.ec2.checks import _publishing
from launch.rehearse.receipt import page as receipt
from launch.report import findings, page, tables
from launch.slurm.script import render
from launch.sweep.command import _close as sweep_closing
from launch.sweep.table import CSV, log_hint, write_csv
from tests.conftest import ROOT
from tests.launch.ec2.known import plan
from tests.launch.rehearse.receipt.receipts import RECEIPT
from tests.launch.report.conftest import NOON
from tests.launch.report.made import run
from tests.launch.slurm.jobs import GPUS, planned
from trainer.config import TrainConfig
from trainer.errors import SettingsError
from trainer.terminal import FORMULAS, cell, harmless_row

KNOWN = (
    "it's", '"', "\\", "$(touch ran)", "`touch ran`", "${HOME}", "a\nb; touch ran", "\r\n#SBATCH --wrap=ran", "';",
    "=1+1", "@SUM(1)", "-2+cmd|' /C calc'!A0", "+1;2", "\t=1", "\x1b[2J\x1b]0;t\x07", "\x9b31m", "\u202egpj.exe",
    "\u2066x", "<script>ran()</script>", "' onload='ran()", '"><img src=x onerror=ran()>', "</title><b>", "]]>",
    "--><b>", "{{ 7*7 }}", "{% raw %}", "&lt;b&gt;", "javascript:ran()", "@JOB@", "%s%n", "../../etc/passwd", "-rf",
    "--epochs", "m\u00fcll \u6f22", "\U0001f680", " ", "x" * 10_000,
)  # fmt: skip


def mixtures(count: int) -> list[str]:
    """Several of them in one name."""
    random = Random(17)
    return ["".join(random.choices(KNOWN[:-1], k=random.randrange(2, 6))) for _ in range(count)]


HOSTILE = (*KNOWN, *mixtures(60))


# ---- shells


def marked_lines(template: str) -> list[str]:
    """The lines of a template that are filled."""
    text = COMMENT.sub("", files("infra").joinpath(template).read_text())
    return [line for line in text.splitlines() if MARK.search(line)]


# Every file for a shell that is filled: a new one is among them.
TEMPLATES = [
    path.relative_to(ROOT / "infra").as_posix()
    for path in sorted((ROOT / "infra").rglob("*"))
    if path.suffix in (".sh", ".sbatch") and MARK.search(COMMENT.sub("", path.read_text()))
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_shell_gets_each_value_back_as_it_went_in(template: str, tmp_path: Path) -> None:
    """The lines of the real template, in a real bash, in a folder where nothing may appear."""
    script = list[str]()
    for line in marked_lines(template):
        (variable,) = re.findall(r"^(\w+)=", line)
        for name in HOSTILE:
            value: str | Sequence[str] = [name, name] if "(@" in line else name
            script.append(MARK.sub(lambda mark, value=value: templates._quoted(value), line))  # type: ignore[misc]
            script.append(f"printf '%s\\0' \"${{{variable}[@]}}\"")

    ended = subprocess.run(["bash"], input="\n".join(script).encode(), capture_output=True, cwd=tmp_path, check=True)

    expected = [name for line in marked_lines(template) for name in HOSTILE for _ in range(2 if "(@" in line else 1)]
    assert ended.stdout.decode().split("\0")[:-1] == expected
    assert list(tmp_path.iterdir()) == []


def test_whole_scripts_stay_scripts(tmp_path: Path) -> None:
    """With everything in one of them: bash reads it to its end, and nothing is run by reading."""
    names = [name for name in HOSTILE if len(name) < 300]
    cluster = replace(plan().payload.cluster, train=Script(("train.py", *names)), image=" ".join(names), job=names[0])

    script = requests.user_data(cluster, cluster.resolved.instances[0])

    ended = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_batch_script_is_refused_or_keeps_its_directives() -> None:
    """sbatch reads them until the first line that is none: https://slurm.schedmd.com/sbatch.html"""
    plain, refused = _directives(Path("/data/plain")), 0
    assert "#SBATCH --job-name=digits" in plain
    for name in HOSTILE:
        try:
            assert _directives(Path("/data") / name) == plain
        except SettingsError:
            refused += 1
    assert refused < len(HOSTILE)


def _directives(data: Path) -> list[str]:
    script = _batch_script(data).splitlines()
    return list(takewhile(lambda line: line.startswith("#") or not line.strip(), script))


def _batch_script(data: Path) -> str:
    return render(planned(GPUS, cwd=Path("/home/me"), dataset="imagefolder", data_dir=data).payload.job)


# ---- JSON, and what a plan shows


def test_a_plan_as_json_says_what_was_given() -> None:
    for name in KNOWN:
        made = plan(train=TrainConfig(dataset="imagenet", wandb=name))
        assert any(name in text for text in _texts(json.loads(as_json(made))))
        assert harmless(as_text(made)) == as_text(made)


def _texts(tree: object) -> list[str]:
    if isinstance(tree, dict):
        return [text for value in tree.values() for text in _texts(value)]
    if isinstance(tree, list):
        return [text for value in tree for text in _texts(value)]
    return [str(tree)]


# ---- pages


class Structure(HTMLParser):
    """The elements of a page, how often each is there, and all names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.attributes = Counter[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def report_page(names: Sequence[str]) -> str:
    runs = [replace(run("a", batch=64 + place), name=name, reason=name) for place, name in enumerate(names)]
    results = findings.find(runs, None, target=None, unread=())
    return page.as_html(results, (), [*names], title=" ".join(names), made=NOON)


def receipt_page(names: Sequence[str]) -> str:
    lines = [replace(RECEIPT.lines[0], text=name) for name in names]
    nodes = [replace(node, how=name) for node, name in zip(RECEIPT.nodes, names, strict=False)]
    facts = replace(RECEIPT, job=" ".join(names), command=" ".join(names), place=names[0], lines=lines, nodes=nodes,
                    differences=[*names], trouble=" ".join(names), faults=[(1.0, name) for name in names])  # fmt: skip
    return receipt.as_html(facts)


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt's are drawn of numbers, by matplotlib, and take longer than all the rest here."""
    monkeypatch.setattr(receipt, "pictures", lambda charts: [])


# Each page of infra, by its template: a new one is here, too.
PAGES = {"report/report.html.j2": report_page, "rehearse/receipt.html.j2": receipt_page}


@pytest.mark.parametrize("make", PAGES.values())
def test_a_page_has_the_same_elements_whatever_the_names_are(make: Callable[[Sequence[str]], str]) -> None:
    plain, hostile = Structure(make([f"plain{n}" for n in range(len(HOSTILE))])), Structure(make(HOSTILE))

    assert plain.elements.total() > 300
    assert hostile.elements == plain.elements
    assert hostile.attributes <= plain.attributes


@pytest.mark.parametrize("make", PAGES.values())
def test_a_page_and_a_table_hold_names_that_are_no_text(make: Callable[[Sequence[str]], str]) -> None:
    """As the bytes of a file's name may be, and what JSON has for half a character."""
    assert "\\udcff" in make(["a\udcff"] * 3)
    assert receipt.file_tables({"a\udcff": 1})[0][1][0].href == "a%FF"
    assert cell("a\udcff") == "a\\udcff"


# ---- CSV


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def is_formula(cell: str) -> bool:
    return cell.startswith(FORMULAS) and not re.fullmatch(r"[-+][0-9.e+-]+", cell)


def test_no_cell_of_a_table_is_a_formula_and_no_line_is_torn(tmp_path: Path) -> None:
    """Also where a run folder has a list of them, or names by which to find one, in the place of a word."""
    records = [{**run("a").epochs[0], "device": [name], "strategy": {name: name}} for name in HOSTILE]
    runs = [replace(run(f"r{place}"), name=name, reason=name, epochs=(record,), point={"model": [name, name]})
            for place, (name, record) in enumerate(zip(HOSTILE, records, strict=True))]  # fmt: skip

    write_csv(runs, tmp_path)
    sweep = cells((tmp_path / CSV).read_text())
    report = cells(tables.as_csv(findings.find(runs, None, target=None, unread=())))

    for rows in (sweep, report):
        assert len(rows) == 1 + len(runs)
        assert {len(row) for row in rows} == {len(rows[0])}
        parts = [part for row in rows for cell in row for part in re.split(r'[;\t\r\n][\s"]*', cell)]
        assert [part for part in parts if is_formula(part)] == []


def test_what_a_spreadsheet_would_run_is_quoted() -> None:
    cases = [
        '=HYPERLINK("http://x")',
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\uff1d1+1",
        "\uff20SUM(1)",
    ]
    for text in cases:
        quoted = f"'{text[0]}'{text[1:]}" if text[0] in "\t\r\n" else f"'{text}"
        assert harmless_row({text: text}) == {quoted: quoted}


def test_numbers_and_words_are_left_as_they_are() -> None:
    for value in ["a; b=1", "-1.5", "+2", "1e-3", "resnet18", "", -3, 2.5, None, True, "a=b"]:
        assert harmless_row({"x": value}) == {"x": value}


# ---- terminals


def test_a_terminal_shows_every_name_and_obeys_none(capsys: pytest.CaptureFixture[str]) -> None:
    for name in HOSTILE:
        say(name)
    assert all(part.isprintable() for part in re.split(r"[\n\t]", capsys.readouterr().out))
    for name in HOSTILE:
        for line in (harmless(name), table(["job"], [[name]])):
            assert all(part.isprintable() for part in re.split(r"[\n\t]", line)), ascii(name)


# ---- commands to paste

FOLDER = Path("/data/it's; touch ran $(id)")


def _closing() -> None:
    sweep_closing([], FOLDER)


def _publish_folder() -> None:
    say(str(not_in_s3(str(FOLDER))))


def _publish_for_ec2() -> None:
    say(_publishing(Classifier(TrainConfig(dataset="imagefolder", data_dir=FOLDER))))


@pytest.mark.parametrize("show", [_closing, _publish_folder, _publish_for_ec2, lambda: say(log_hint(FOLDER))])
def test_a_folder_stands_in_a_command_to_paste_as_one_word(
    show: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A data set, a repository or a run that somebody else has named is not run by copying what is shown."""
    show()
    assert shlex.quote(str(FOLDER))[1:-1] in capsys.readouterr().out
