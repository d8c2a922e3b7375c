"""Files that somebody else may have made are read by trainer/files.py: ordinary files only, and no more than a limit.

Who reads a file by another way says here whose it is, or what has been looked at before.
"""

import ast
from collections.abc import Iterator
from itertools import chain

from tests.conftest import ROOT

PACKAGE = {  # what comes with the toolkit, or lies in its checkout
    "launch/core/catalog.py:load",
    "launch/core/estimate/tables.py:table",
    "launch/core/examination/roles.py:_document",
    "launch/core/refusals.py:granted_by",
    "launch/core/templates.py:_text",
    "launch/data/near/bundle.py:_contents",
    "launch/image/source.py:read_source",
    "launch/image/source.py:_checked",
    "launch/image/context.py:pack",
    "launch/infra/template.py:filled",
    "launch/rehearse/aws/iam/policies.py:policy",
    "launch/rehearse/receipt/page.py:as_html",
    "launch/report/page.py:as_html",
    "launch/sagemaker/bundle.py:_python_files",
    "launch/sagemaker/images.py:_table",
    "launch/sagemaker/packages.py:_lock",
    "trainer/serving.py:write_code",
}
KERNEL = {  # /proc and devices
    "launch/core/ending.py:_marked",
    "launch/rehearse/nodes/ec2/docker.py:first_process",
    "launch/rehearse/nodes/ec2/docker.py:kill_descendants",
    "launch/rehearse/nodes/ec2/namespaces.py:children",
    "launch/rehearse/nodes/ec2/power.py:_parents",
    "launch/rehearse/nodes/ec2/warm_aws.py:run",
    "launch/rehearse/nodes/sagemaker/toolkit.py:end_with_stdin",
    "launch/rehearse/nodes/sagemaker/toolkit.py:has",
    "trainer/process/as_command.py:begin",
    "trainer/process/driver.py:load_from_root",  # the current folder, to come back to
    "trainer/process/forks.py:_redirect",
    "trainer/process/output.py:_write_nowhere",
    "trainer/script/child.py:_children",
    "trainer/script/record.py:process_start",
    "trainer/torchrun.py:_signal_children",
    "trainer/tune/trial.py:_free_memory",
}
OWN = {  # in a folder that the process, its rehearsal or its container has made, where nobody else writes
    "launch/rehearse/nodes/ec2/docker.py:main",
    "launch/rehearse/nodes/ec2/docker.py:send",
    "launch/rehearse/nodes/ec2/namespaces.py:_lay_out",
    "launch/rehearse/nodes/ec2/node.py:text_of",
    "launch/rehearse/nodes/ec2/power.py:main",
    "launch/rehearse/nodes/sagemaker/container.py:Container._open_disk",
    "launch/rehearse/nodes/sagemaker/files.py:Checkpoints._keep",
    "launch/rehearse/stage/ec2.py:_from_blocks",
    "launch/sagemaker/lookup.py:_role_of_studio",
    "launch/sagemaker/result.py:fetch_result",
    "launch/sweep/folder.py:collect_results",
    "trainer/process/packages.py:install",
    "trainer/process/sagemaker_inputs.py:_read",
    "trainer/sagemaker.py:_copy_results",
    "trainer/script/packages.py:_make",
    "trainer/script/packages.py:_texts",
}
DATA = {  # of a size that its manifest or index says, read in pieces, and known by its digest
    "launch/data/image.py:scan",
    "launch/data/near/source.py:Copying._fetch",
    "launch/data/prepared.py:check_digest",
    "launch/data/snapshot.py:_opened",
    "launch/data/upload.py:Uploader._parts",
    "launch/data/upload.py:Uploader.upload",
    "trainer/datasets/fetching.py:FetchingShelf._fetch",
    "trainer/datasets/fetching.py:FetchingShelf.peek",
    "trainer/datasets/cached_files.py:_digest",
    "trainer/datasets/shards.py:Folder._open",
    "trainer/datasets/shards.py:_digest",
    "trainer/datasets/shards.py:_mapped",
    "trainer/datasets/source.py:Piece.read",
    "trainer/prepare/listing.py:Origin.read",
    "trainer/prepare/shard.py:check",
    "trainer/prepare/shard.py:digest_of",
}
LIMITED = {  # looked at first, and with a limit of its own
    "trainer/datasets/archive.py:opened",
    "trainer/datasets/archive.py:opener_of",
    "trainer/kit.py:_newest",
    "trainer/kit.py:_write",
    "trainer/plain.py:read_mapped",
    "trainer/prepare/tars.py:members",
    "trainer/settings/yaml_file.py:_composed",
    "trainer/state/checkpoint.py:_duplicate",
}
REHEARSED = {  # what the user has given to a rehearsal
    "launch/rehearse/aws/ec2/seed.py:_copy",
    "launch/rehearse/stage/sagemaker_account.py:_put_data",
}

BY_THEMSELVES = {"read_text", "read_bytes"}
OF_MODULES = {
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "unpack_archive"},
    "os": {"open"},
    "np": {"load", "fromfile", "memmap"},
    "tarfile": {"open"},
    "gzip": {"open"},
    "zipfile": {"ZipFile"},
}


def reads(call: ast.Call) -> bool:
    """Whether a call opens a file by its path, and not only to write it."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    owner = ast.unparse(function.value)
    if owner in OF_MODULES:
        is_open = any(word.arg == "fileobj" for word in call.keywords) or "BytesIO(" in ast.unparse(call)
        return function.attr in OF_MODULES[owner] and not is_open
    if function.attr == "open" and owner != "Image":
        return bool(call.args or call.keywords)  # a path's; methods of ours are called without
    return function.attr in BY_THEMSELVES


def readers(node: ast.AST, within: str = "") -> Iterator[str]:
    """The names of the functions and methods in a module that open files; "" for the module's own lines."""
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}".lstrip(".")
        if isinstance(child, ast.Call) and reads(child) and "O_CREAT" not in ast.unparse(child):
            yield name
        yield from readers(child, name)


def test_files_are_read_in_one_way() -> None:
    paths = [path for folder in ("trainer", "launch") for path in (ROOT / folder).rglob("*.py")]
    names = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}
    found = {
        f"{name}:{reader}" for name, tree in names.items() if name != "trainer/files.py" for reader in readers(tree)
    }

    assert found == set(chain(PACKAGE, KERNEL, OWN, DATA, LIMITED, REHEARSED))


def test_a_new_reader_is_noticed() -> None:
    program = "class A:\n    def read(self, path):\n        return {}\n"
    for line in ("path.read_text()", "path.open('rb')", "open(path)", "np.load(path)", "os.open(path, os.O_RDONLY)"):
        assert list(readers(ast.parse(program.format(line)))) == ["A.read"]
    for line in (
        "self.open()",
        "tarfile.open(fileobj=file)",
        "zipfile.ZipFile(BytesIO(data))",
        "os.open(path, os.O_CREAT | os.O_WRONLY)",
    ):
        assert list(readers(ast.parse(program.format(line)))) == []
