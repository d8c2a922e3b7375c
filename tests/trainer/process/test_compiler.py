"""torch's compiler stays out of a training that compiles nothing, and is there for whoever wants it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import trainer_env
from tests.warm import free_port

AROUND = """
import sys
from trainer.process import compiler
compiler.leave_out()
import torch
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(2):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
assert "torch._dynamo.convert_frame" not in sys.modules, "the optimizer imports the compiler"
{wanted}
assert "torch._dynamo.convert_frame" in sys.modules
assert sys.modules["torch._dynamo"] is torch._dynamo
assert all(module.__spec__.name == name for name, module in sys.modules.items() if name.startswith("torch._dynamo."))
"""


@pytest.mark.slow("whoever wants any part of torch's compiler gets the real one")
@pytest.mark.parametrize(
    "wanted",
    [
        "assert torch.compile(model, backend='eager')(torch.ones(2, 3)).shape == (2, 3)",
        "import torch._dynamo.config as config; assert config is torch._dynamo.config",
        "from torch._dynamo.utils import counters",
    ],
)
def test_whoever_wants_the_compiler_gets_the_real_one(wanted: str) -> None:
    words = [sys.executable, "-c", AROUND.format(wanted=wanted)]
    ended = subprocess.run(words, env=trainer_env(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


TRAINING = """
import os, sys, trainer.__main__
code = trainer.__main__.main(sys.argv[1:], os.environ)
assert "torch._dynamo.convert_frame" not in sys.modules, "a part of the compiler was imported"
trainer.__main__.leave(code)
"""


def test_a_training_with_ddp_and_torchvision_imports_no_compiler(tmp_path: Path) -> None:
    words = ["--model", "shufflenet_v2_x0_5", "--dataset", "digits", "--max-steps", "2", "--threads", "1",
             "--strategy", "ddp", "--cache-dir", str(tmp_path / "cache"),
             "--run-dir", str(tmp_path / "run")]  # fmt: skip
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, "-c", TRAINING, *words],
        env=trainer_env(alone | {"MASTER_PORT": str(free_port())}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
