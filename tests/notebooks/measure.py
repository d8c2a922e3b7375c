"""Makes notebooks/scaling_runs again: trains what notebooks/scaling_runs.yaml lists, and draws the overview of it.

python -m tests.notebooks.measure

It takes some minutes on two cores; nothing else should run on them.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from launch.core.runs import RUN
from tests.conftest import ROOT, trainer_env
from trainer.contract import METRICS, SETTINGS

LIST, KEPT = ROOT / "notebooks/scaling_runs.yaml", ROOT / "notebooks/scaling_runs"
FILES = (RUN, METRICS, SETTINGS)
OVERVIEW = "overview.png"


def call(module: str, *words: object, cwd: Path) -> None:
    subprocess.run([sys.executable, "-m", module, *map(str, words)], cwd=cwd, env=trainer_env(), check=True)


def main() -> None:
    """Measures and draws."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        # A relative folder, so that no path of this machine is written into settings.
        call("launch.sweep", LIST, "--out", "scaling", cwd=work)
        for old in KEPT.glob("*/"):
            shutil.rmtree(old)
        for mark in (work / "scaling").glob(f"*/{RUN}"):
            (KEPT / mark.parent.name).mkdir(parents=True)
            for name in FILES:
                if (mark.parent / name).exists():
                    shutil.copy(mark.parent / name, KEPT / mark.parent.name)
        call("launch.report", KEPT, "--out", work / "report", cwd=work)
        shutil.copy(work / "report" / OVERVIEW, KEPT)


if __name__ == "__main__":
    main()
