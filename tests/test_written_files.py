"""Files are written as trainer/files.py does: through no link, and into no pipe, that somebody else has put there.

What opens a file itself says here why nobody else can have been first.
"""

import ast
from collections import Counter

from tests.conftest import ROOT

# By file: how often, and where to.
APART = {
    "trainer/files.py": 2,  # the ways that all others take, by "x"
    "trainer/kit.py": 1,  # by "x"; it needs nothing else of the trainer
    "trainer/container.py": 1,  # SageMaker's container, which is a job's own
    "trainer/serving.py": 2,  # a folder that was made for it
    "trainer/process/packages.py": 1,  # the same
    "trainer/script/packages.py": 1,  # the same
    "launch/rehearse/nodes/ec2/docker.py": 2,  # a node's root folder, which each rehearsal makes
    "launch/rehearse/nodes/ec2/namespaces.py": 3,
    "launch/rehearse/nodes/ec2/node.py": 1,
    "launch/rehearse/nodes/ec2/power.py": 1,
    "launch/rehearse/nodes/sagemaker/container.py": 1,
    "launch/rehearse/nodes/sagemaker/files.py": 1,
    "launch/rehearse/nodes/sagemaker/network.py": 2,
    "launch/rehearse/stage/ec2.py": 1,
}


def writes(tree: ast.Module) -> int:
    """How often a module writes a file by a path."""
    return sum(_writes(node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _writes(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("write_text", "write_bytes"):
        return True
    if any(given.arg == "fileobj" for given in call.keywords):  # into what is open already
        return False
    modes = [word.value for word in (*call.args, *(given.value for given in call.keywords))
             if isinstance(word, ast.Constant) and isinstance(word.value, str)]  # fmt: skip
    is_path = name == "open" and not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "os.open")
    return is_path and any(set(mode) <= set("wax+bt") for mode in modes)


def test_files_are_written_in_one_way() -> None:
    files = [path for folder in ("trainer", "launch") for path in (ROOT / folder).rglob("*.py")]
    found = Counter({path.relative_to(ROOT).as_posix(): writes(ast.parse(path.read_text())) for path in files})
    assert +found == APART


def test_a_new_way_is_noticed() -> None:
    for line in ("path.write_text('x')", "path.open('w')", "open(path, 'ab')", "path.open(mode='wb')"):
        assert writes(ast.parse(line)) == 1
    for line in (
        "path.open('rb')",
        "path.open()",
        "os.open(path, os.O_RDONLY)",
        "tarfile.open(fileobj=file, mode='w')",
    ):
        assert writes(ast.parse(line)) == 0


def test_whoever_opens_by_flags_makes_no_file_where_a_link_leads() -> None:
    for folder in ("trainer", "launch"):
        for path in (ROOT / folder).rglob("*.py"):
            lines = path.read_text().splitlines()
            assert [line for line in lines if "os.O_CREAT" in line and "os.O_NOFOLLOW" not in line] == [], path
