"""Trainings that nobody here wrote, as the text of a function for a script of the user's own.

They run one after the other in the processes of one job, each as its package has it: a file as it stands, run as
__main__; Lightning's demo model with the Trainer around it that its page shows.  Lightning comes first, as Accelerate
takes the processes' group that is there, and leaves none.
"""

FOREIGN = """
def foreign():
    import os, runpy, tempfile
    from pytorch_lightning import Trainer
    from pytorch_lightning.demos.boring_classes import BoringModel
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    place = {"devices": here, "num_nodes": int(os.environ["WORLD_SIZE"]) // here}
    with tempfile.TemporaryDirectory() as logs:  # else they lie where the job was started
        more = {"default_root_dir": logs, "enable_progress_bar": False}
        Trainer(max_epochs=1, accelerator="cpu", **more, **place).fit(BoringModel())
    os.environ["ACCELERATE_USE_CPU"] = "true"  # without a GPU it takes several processes for one, unless configured
    for module in ("accelerate.test_utils.scripts.test_sync", "torch.utils.collect_env"):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
# What they print once they have worked, on two processes.
SIGNS = (
    "Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2",
    "`Trainer.fit` stopped: `max_epochs=1` reached.",
    "**Test Distributed `no_sync` context manager with multiple forwards**",
    "PyTorch version: ",
)


def missing_in(text: str) -> list[str]:
    """The signs that are not in a job's output."""
    return [sign for sign in SIGNS if sign not in text]
