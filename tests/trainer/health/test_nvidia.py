"""What is read from nvidia-smi's own output and from the kernel's log.

The elements and their words are those that drivers print: 555.42 for an L4 and 575.51 for an RTX 4070, which publish
them on GitHub, and the older form with single and double bits for a V100, shortened to what is looked at.
"""

from pathlib import Path

import pytest

from trainer.health import nvidia
from trainer.health.nvidia import look, problems, xid_problems

# nvidia-smi -q -x, driver 555.42.06.
L4 = """
	<gpu id="00000000:01:00.0">
		<product_name>NVIDIA L4</product_name>
		<gpu_reset_status>
			<reset_required>No</reset_required>
		</gpu_reset_status>
		<ecc_errors>
			<volatile>
				<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
				<dram_uncorrectable>0</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
				<dram_uncorrectable>0</dram_uncorrectable>
				<sram_threshold_exceeded>No</sram_threshold_exceeded>
			</aggregate>
		</ecc_errors>
		<retired_pages>
			<pending_blacklist>N/A</pending_blacklist>
			<pending_retirement>N/A</pending_retirement>
		</retired_pages>
		<remapped_rows>
			<remapped_row_unc>0</remapped_row_unc>
			<remapped_row_pending>No</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
	</gpu>"""
# Driver 575.51.02: no ECC, and a recovery action in place of the reset's status.
RTX = """
	<gpu id="00000000:01:00.0">
		<product_name>NVIDIA GeForce RTX 4070 Laptop GPU</product_name>
		<gpu_reset_status>
			<reset_required>Requested functionality has been deprecated</reset_required>
		</gpu_reset_status>
		<gpu_recovery_action>None</gpu_recovery_action>
		<ecc_errors>
			<volatile>
				<sram_uncorrectable_parity>N/A</sram_uncorrectable_parity>
				<dram_uncorrectable>N/A</dram_uncorrectable>
			</volatile>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_pending>No</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
	</gpu>"""
# A V100: errors by bits, pages in place of rows.
V100 = """
	<gpu id="00000000:00:1E.0">
		<product_name>Tesla V100-SXM2-16GB</product_name>
		<ecc_errors>
			<volatile>
				<single_bit>
					<total>0</total>
				</single_bit>
				<double_bit>
					<total>0</total>
				</double_bit>
			</volatile>
			<aggregate>
				<double_bit>
					<total>0</total>
				</double_bit>
			</aggregate>
		</ecc_errors>
		<retired_pages>
			<pending_blacklist>No</pending_blacklist>
			<pending_retirement>No</pending_retirement>
		</retired_pages>
		<remapped_rows>N/A</remapped_rows>
	</gpu>"""


def log(*gpus: str) -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<attached_gpus>{len(gpus)}</attached_gpus>{''.join(gpus)}\n</nvidia_smi_log>\n"
    )


def changed(gpu: str, old: str, new: str, count: int = 1) -> str:
    assert old in gpu
    return gpu.replace(old, new, count)


REMAPPED = L4.replace("<remapped_row_unc>0", "<remapped_row_unc>4")  # as good as new


@pytest.mark.parametrize("gpu", [L4, RTX, V100, REMAPPED], ids=["L4", "RTX 4070", "V100", "remapped"])
def test_a_healthy_gpu_has_no_problems_whatever_its_driver_prints(gpu: str) -> None:
    assert problems(log(gpu, gpu), gpus=2) == []


@pytest.mark.parametrize(
    ("gpu", "problem"),
    [
        (changed(L4, "<dram_uncorrectable>0", "<dram_uncorrectable>3"), "has 3 uncorrectable memory errors"),
        (changed(L4, "<sram_uncorrectable_parity>0", "<sram_uncorrectable_parity>1200"),
         "has 1,200 uncorrectable memory errors"),
        (changed(V100, "<total>0</total>\n\t\t\t\t</double_bit>", "<total>2</total>\n\t\t\t\t</double_bit>"),
         "has 2 uncorrectable memory errors"),
        (changed(L4, "row_pending>No", "row_pending>Yes"), "has memory rows that wait to be remapped"),
        (changed(L4, "required>No", "required>Yes"), "has to be reset"),
        (changed(V100, "pending_retirement>No", "pending_retirement>Yes"), "has memory pages that wait to be retired"),
        (changed(RTX, "action>None", "action>Drain and Reset"), "needs the driver's recovery action 'Drain and Reset'"),
    ],
)  # fmt: skip
def test_each_sign_of_a_broken_gpu_is_named_with_the_gpu(gpu: str, problem: str) -> None:
    name = gpu.split("product_name>")[1].partition("<")[0]
    assert problems(log(L4, gpu)) == [f"GPU 1 ({name}) {problem}"]


def test_a_gpu_that_is_missing_is_counted() -> None:
    assert problems(log(L4, L4, L4), gpus=4) == ["3 of 4 GPUs are visible"]
    assert problems(log(L4), gpus=None) == []


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Puts a program of that name first on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_the_drivers_own_words_are_quoted_where_nvidia_smi_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    nvidia_smi(tmp_path, monkeypatch, f'[ "$*" = "-q -x" ] && echo "{words}" && exit 9')
    assert look(1) == [f"nvidia-smi failed with exit code 9: {words.rstrip('.')}"]


def test_an_nvidia_smi_that_hangs_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(nvidia, "ANSWER_WITHIN_S", 0.2)
    assert look(1) == ["nvidia-smi did not answer within 0.2 s"]


def test_xid_errors_of_the_machine_count_and_those_of_programs_do_not() -> None:
    assert xid_problems((13, 31, 43, 63, 94)) == []
    assert xid_problems((79, 31, 79, 48)) == [
        "its kernel logged NVIDIA's Xid 48 (an uncorrectable memory error)",
        "its kernel logged NVIDIA's Xid 79 (the GPU has fallen off the bus)",
    ]


def test_output_that_is_no_xml_is_a_problem_and_no_traceback() -> None:
    (problem,) = problems("Unable to determine the device handle for GPU0000:00:1E.0: Unknown Error\n")
    assert problem.startswith("nvidia-smi printed invalid XML")


def test_an_image_without_nvidia_smi_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(1) == []
