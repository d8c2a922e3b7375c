"""launch.core.templates: what is filled in comes out of a shell as it went in, and no name is forgotten."""

import subprocess
from pathlib import Path

import pytest
import yaml

from launch.core import templates
from launch.core.templates import fill, fill_yaml

NASTY = 'it\'s $HOME `id` "x" \\ ; & | * \n two lines, @JOB@ and ümlaut'


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """infra/script.sh."""
    monkeypatch.setattr(templates, "files", {"infra": tmp_path}.__getitem__)
    return tmp_path / "script.sh"


def words(text: str) -> list[str]:
    """The arguments that a shell makes of `text`."""
    run = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, text=True, check=True)
    return run.stdout.split("\0")[:-1]


def test_a_script_is_sent_without_indentation_but_here_documents_and_values_keep_theirs(script: Path) -> None:
    script.write_text("f() {\n    python3 - <<'EOF'\nif 1:\n    print(2)\nEOF\n    echo @A@\n}\n")
    assert fill("script.sh", {"A": "one\n  two"}) == (
        "f() {\npython3 - <<'EOF'\nif 1:\n    print(2)\nEOF\necho 'one\n  two'\n}\n"
    )


def test_names_are_replaced_wherever_they_stand_but_not_in_values(script: Path) -> None:
    script.write_text("a=@A@ b=@B_2@ again=@A@ mail@example.org @lower@")

    assert fill("script.sh", {"A": "1", "B_2": "@A@"}) == "a=1 b=@A@ again=1 mail@example.org @lower@"


@pytest.mark.parametrize(
    ("value", "given"),
    [("two words", ["two words"]), ("", [""]), (NASTY, [NASTY]), ([], []), (["a b", "", NASTY], ["a b", "", NASTY])],
)
def test_a_text_is_one_word_and_a_sequence_as_many_as_it_has_items(
    script: Path, value: str | list[str], given: list[str]
) -> None:
    script.write_text("before @A@ after")

    assert words(fill("script.sh", {"A": value})) == ["before", *given, "after"]


def test_comments_stay_behind_but_for_those_that_a_program_reads(script: Path) -> None:
    script.write_text(
        "#!/bin/bash\n# why\n#SBATCH --nodes=1\nif true; then\n    # why\n    #\n    echo @A@  # where\nfi # never\n"
        "echo 'a # b' \"${#a} # c\"\npython3 - <<'EOF'\nx = 1  # a document's\nEOF\n"
    )

    rendered = fill("script.sh", {"A": "one\n# two\n"})

    assert rendered == (
        "#!/bin/bash\n#SBATCH --nodes=1\nif true; then\necho 'one\n# two\n'\nfi\n"
        "echo 'a # b' \"${#a} # c\"\npython3 - <<'EOF'\nx = 1  # a document's\nEOF\n"
    )


@pytest.mark.parametrize("names", [["A"], ["A", "B", "C"], ["B", "a"]])
def test_a_name_that_is_missing_or_not_used_is_a_bug(script: Path, names: list[str]) -> None:
    script.write_text("@A@ @B@")
    with pytest.raises(KeyError):
        fill("script.sh", dict.fromkeys(names, "1"))


@pytest.mark.parametrize("value", [NASTY, {"Statement": [{"Resource": "${aws:PrincipalAccount}"}]}, [1, None, True]])
def test_a_quoted_name_in_yaml_becomes_the_value_whatever_is_in_it(script: Path, value: object) -> None:
    script.write_text('before: 1\nit: "@IT@"  # why\nafter: [2]\n')

    assert yaml.safe_load(fill_yaml("script.sh", {"IT": value})) == {"before": 1, "it": value, "after": [2]}


def test_comments_in_yaml_stay_behind(script: Path) -> None:
    script.write_text('# why\na: 1  # how\n  # why\nb: "@IT@"\n')
    assert fill_yaml("script.sh", {"IT": "#\n# 2"}) == 'a: 1\nb: "#\\n# 2"\n'


@pytest.mark.parametrize("values", [{}, {"IT": 1, "THAT": 2}])
def test_a_name_in_yaml_that_is_missing_or_unused_is_an_error(script: Path, values: dict[str, int]) -> None:
    script.write_text('it: "@IT@"')
    with pytest.raises(KeyError):
        fill_yaml("script.sh", values)
