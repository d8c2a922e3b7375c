"""launch.core.catalog: what infra/instances.yaml says, and that it agrees with what AWS says."""

from datetime import date

import pytest

from launch.core.catalog import Instance, Rate, find, load, warning
from trainer.errors import SettingsError


def every(name: str) -> list[str]:
    return [instance.name for instance in load().values() if getattr(instance, name)]


def test_the_default_type_is_what_aws_sells() -> None:
    assert find("g5.2xlarge") == Instance(
        name="g5.2xlarge",
        gpus=1,
        gpu_model="A10G",
        gpu_memory_gib=22.35,  # 24 GB
        architecture="sm_86",
        half_tflops=70,
        vcpus=8,
        memory_gib=32,
        nvme_gb=450,
        efa=0,
        network_gbps=Rate(base=5, peak=10),
        ebs_mb_per_s=Rate(base=106.25, peak=437.5),
        usd_per_hour=1.212,
        processor="AMD",
        clock_ghz=3.3,
        sagemaker_usd_per_hour=1.515,
    )


def test_sagemakers_name_finds_the_same_type() -> None:
    assert find("ml.g5.2xlarge") is find("g5.2xlarge")
    assert find("g5.2xlarge").sagemaker_name == "ml.g5.2xlarge"


def test_an_unknown_type_gets_the_nearest_name() -> None:
    with pytest.raises(
        SettingsError, match=r"^unknown instance type 'g5\.2xlrge'; did you mean 'g5\.2xlarge'\? Known: g4"
    ):
        find("g5.2xlrge")


def test_an_unknown_type_on_sagemaker_gets_the_nearest_name_there() -> None:
    with pytest.raises(SettingsError, match=r"instance type 'ml\.p3\.8xlrge'; did you mean 'ml\.p3\.8xlarge'\?"):
        find("ml.p3.8xlrge")


def test_a_type_that_sagemaker_has_not_is_unknown_there_only() -> None:
    assert find("c5.large").sagemaker_name is None
    with pytest.raises(SettingsError, match=r"instance type 'ml\.c5\.large'; did you mean 'ml\.c"):
        find("ml.c5.large")


def test_the_warning_for_a_p3_names_its_replacement() -> None:
    assert warning(find("ml.p3.8xlarge")) == (
        "p3.8xlarge is being retired: AWS asks users to move off it by 2025-12-20, so it may be unavailable. "
        "Take g5.12xlarge (ml.g5.12xlarge on SageMaker), which has as many GPUs."
    )
    assert warning(find("g5.12xlarge")) is None


def test_only_types_at_their_end_warn_and_their_replacements_have_as_many_gpus() -> None:
    ending = {i.name: i.end_of_life for i in load().values() if i.end_of_life}

    assert list(ending) == ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge"]
    for name, end in ending.items():
        replacement = find(f"ml.{end.replacement}")
        assert (end.leave_by, replacement.gpus) == (date(2025, 12, 20), find(name).gpus)
        assert warning(replacement) is None


def test_every_family_of_the_design_is_there() -> None:
    assert list(dict.fromkeys(name.split(".")[0] for name in load())) == [
        "g4dn", "g5", "g6", "g6e", "g6f", "gr6", "gr6f", "g7", "g7e", "p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en",
        "p6-b200", "p6-b300", "c5", "c6id", "c7i", "i4i", "m5", "m7i",
    ]  # fmt: skip


def test_amx_is_noted_for_the_cpus_that_have_it() -> None:
    assert {name.split(".")[0] for name in every("amx")} == {"c7i", "m7i"}


@pytest.mark.parametrize("instance", load().values(), ids=lambda i: i.name)
def test_every_entry_makes_sense(instance: Instance) -> None:
    described = [instance.gpu_model, instance.gpu_memory_gib, instance.architecture]

    assert all(described) if instance.is_gpu else not any(described)
    assert 0 < instance.network_gbps.base <= instance.network_gbps.peak
    assert 0 < instance.ebs_mb_per_s.base <= instance.ebs_mb_per_s.peak
    assert instance.usd_per_hour > 0
    assert instance.sagemaker_usd_per_hour is None or instance.sagemaker_usd_per_hour >= instance.usd_per_hour


def test_a_larger_type_of_a_family_never_has_less_memory() -> None:
    families: dict[str, list[float]] = {}
    for instance in load().values():
        families.setdefault(instance.name.split(".")[0], []).append(instance.memory_gib)

    assert all(memory == sorted(memory) for memory in families.values())


def test_a_price_that_is_on_no_current_list_says_so() -> None:
    sources = {(i.price_source, i.sagemaker_price_source): i.name for i in reversed(load().values())}

    assert sources == {
        ("list", "list"): "g4dn.xlarge",
        ("list", "old_list"): "p3.2xlarge",
        ("list", "estimate"): "g7.2xlarge",
        ("capacity_block", "estimate"): "p5e.48xlarge",
    }
    assert [i.name for i in load().values() if not i.is_on_demand] == ["p5e.48xlarge"]


def test_the_ml_twins_are_those_that_sagemaker_trains_on() -> None:
    loaders = pytest.importorskip("botocore.loaders")
    model = loaders.Loader().load_service_model("sagemaker", "service-2")
    trains = set(model["shapes"]["TrainingInstanceType"]["enum"])

    assert {i.name for i in load().values() if i.sagemaker_name} == {name for name in load() if f"ml.{name}" in trains}
