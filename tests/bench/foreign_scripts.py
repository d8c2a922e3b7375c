"""Trainings that nobody here wrote, unchanged, with --script on every backend: python -m tests.bench.foreign_scripts

Accelerate's own distributed test, Lightning's demo model, and a script of PyTorch's wheel: locally, on two rehearsed
EC2 nodes, by SageMaker's real toolkit on two hosts, and on two nodes of a real Slurm.  Needs `make everything`.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import trainer_env
from tests.launch.slurm.cluster import started

# Its demo modules need a Trainer around them, as its own page has it.
LIGHTNING = """\
from pytorch_lightning import Trainer
from pytorch_lightning.demos.boring_classes import BoringModel

trainer = Trainer(max_epochs=1, accelerator="cpu", enable_progress_bar=False, num_nodes={nodes}, devices={devices})
trainer.fit(BoringModel())
"""
# Name -> the module whose file is copied, and what it prints when it has worked.
SCRIPTS = {
    "accelerate": (
        "accelerate.test_utils.scripts.test_sync",
        "**Test Distributed `no_sync` context manager with multiple forwards**",
    ),
    "lightning": ("", "`Trainer.fit` stopped: `max_epochs=1` reached."),
    "torch": ("torch.utils.collect_env", "PyTorch version:"),
}
TWO = ("--nodes", "2")
BACKENDS = {
    "local": ("launch.local", ("--nproc-per-node", "2")),
    "ec2": ("launch.ec2", (*TWO, "--instance-type", "c7i.2xlarge", "--allow-cpu", "--rehearse")),
    "sagemaker": ("launch.sagemaker", (*TWO, "--instance-type", "ml.g5.2xlarge", "--rehearse")),
    "slurm": ("launch.slurm", (*TWO, "--gpus-per-node", "0", "--time", "20", "--cpus-per-task", "1", "--wait")),
}


def write(name: str, backend: str, folder: Path) -> None:
    module, _ = SCRIPTS[name]
    if module:
        found = find_spec(module)
        assert found is not None
        assert found.origin is not None
        shutil.copy(found.origin, folder / "train.py")
    else:
        nodes, devices = (1, 2) if backend == "local" else (2, 1)
        (folder / "train.py").write_text(LIGHTNING.format(nodes=nodes, devices=devices))


@contextmanager
def environment(backend: str) -> Iterator[dict[str, str]]:
    if backend != "slurm":
        yield trainer_env({})
        return
    with started() as cluster:
        yield trainer_env({name: cluster.env[name] for name in ("SLURM_CONF", "PATH")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="backends, with commas")
    parser.add_argument("--scripts", default="", help="scripts, with commas")
    args = parser.parse_args()
    print(f"{'script':12} {'backend':10} exit  worked  s")
    for backend, (module, flags) in BACKENDS.items():
        if args.only and backend not in args.only.split(","):
            continue
        for name, (_, sign) in SCRIPTS.items():
            if args.scripts and name not in args.scripts.split(","):
                continue
            with TemporaryDirectory() as place, environment(backend) as env:
                write(name, backend, Path(place))
                # Without a GPU Accelerate takes several processes for one, unless configured.
                words = [sys.executable, "-m", module, *flags, "--script", "train.py",
                         "--variables", "ACCELERATE_USE_CPU=true"]  # fmt: skip
                began = time.monotonic()
                ended = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, check=False)
                logs = [path.read_text(errors="replace") for path in Path(place).glob("runs/*/logs/*")]
                logs += [path.read_text(errors="replace") for path in Path(place).glob("runs/*/job.log")]
                has_worked = any(sign in text for text in (ended.stdout, ended.stderr, *logs))
                seconds = time.monotonic() - began
                print(f"{name:12} {backend:10} {ended.returncode:4}  {'yes' if has_worked else 'no':6}  {seconds:.0f}")
                if ended.returncode or not has_worked:
                    print((ended.stdout + ended.stderr)[-3000:])
                sys.stdout.flush()


if __name__ == "__main__":
    main()
