"""What the rest of the toolkit knows of launch.slurm."""

import pytest

from launch.core.backend import Demand, Place, find
from trainer.errors import SettingsError


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        (Demand({"nodes": 2}, "ddp", None), Place({"nodes": 2}, None)),
        (Demand({"nodes": "2"}, "ddp", 8), Place({"nodes": "2", "gpus_per_node": 4}, 8)),
        (Demand({}, "ddp", 4), Place({"gpus_per_node": 4}, 4)),
        (Demand({"nodes": 2}, "ddp", 4, on_cpu=True), Place({"nodes": 2, "nproc_per_node": 2}, 4)),
    ],
)
def test_gpus_are_divided_among_the_nodes(request_: Demand, place: Place) -> None:
    assert find("slurm").place(request_) == place


def test_gpus_that_do_not_divide_are_refused() -> None:
    with pytest.raises(SettingsError, match="3 do not divide among 2 nodes"):
        find("slurm").place(Demand({"nodes": 2}, "ddp", 3))


def test_a_job_outlives_the_process_that_follows_it() -> None:
    backend = find("slurm")

    assert (backend.marks_children, backend.shares_folders) == (False, True)
