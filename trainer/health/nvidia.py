"""GPU faults reported by NVIDIA's driver: through nvidia-smi, and as Xid errors in the kernel's log.

Pure, except for query(), which runs nvidia-smi.  Its XML elements differ between drivers and GPUs, so missing and N/A
elements are ignored.  NVIDIA documents which ones mean that a GPU must not be used:
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, https://docs.nvidia.com/deploy/dynamic-page-retirement
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree  # only parses the driver's output

ANSWER_WITHIN_S = 30.0
# Elements that are "Yes" if there is a fault, and its description.
FLAGS = {
    "retired_pages/pending_retirement": "memory pages that wait to be retired",
    "retired_pages/pending_blacklist": "memory pages that wait to be retired",  # its name before driver 450
    "remapped_rows/remapped_row_pending": "memory rows that wait to be remapped",
    "remapped_rows/remapped_row_failure": "memory rows that could not be remapped",
    "ecc_errors/aggregate/sram_threshold_exceeded": "more errors in SRAM than NVIDIA allows",
    "ecc_errors/unrepairable_memory": "memory that cannot be repaired",
    "ecc_errors/channel_repair_pending": "a memory channel that waits for repair",
    "ecc_errors/tpc_repair_pending": "a processor that waits for repair",
    "gpu_reset_status/reset_required": "to be reset",
}
# Xid errors of the hardware; others, such as 13, 31, 43 and 45, are mostly caused by programs, or do no damage.
# https://docs.nvidia.com/deploy/xid-errors
XIDS = {
    48: "an uncorrectable memory error",
    62: "its microcontroller halted",
    64: "memory could not be retired or remapped",
    74: "an NVLink failed",
    79: "the GPU has fallen off the bus",
    95: "a memory error that could not be contained",
    119: "its system processor timed out",
    120: "its system processor failed",
    140: "an unrecovered memory error",
}


def query() -> str | None:
    """Run `nvidia-smi -q -x` and return its output, or None if it is not installed.

    Raises subprocess.SubprocessError if it fails or does not answer.
    """
    words = ["nvidia-smi", "-q", "-x"]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_WITHIN_S, errors="replace")
    except FileNotFoundError:
        return None
    ended.check_returncode()
    return ended.stdout


def driver_version() -> str | None:
    """The version of NVIDIA's driver, such as 570.86.15, or None if nvidia-smi finds none."""
    try:
        found = re.search(r"<driver_version>([^<]+)</driver_version>", query() or "")
    except subprocess.SubprocessError:
        return None
    return found[1].strip() if found else None


def look(gpus: int | None) -> list[str]:
    """The faults of this machine that nvidia-smi reports, a clause each.  gpus: the expected number."""
    try:
        answer = query()
    except subprocess.TimeoutExpired:
        return [f"nvidia-smi did not answer within {ANSWER_WITHIN_S:g} s"]
    except subprocess.CalledProcessError as failed:
        return [f"nvidia-smi failed with exit code {failed.returncode}: {_last_line(failed.stdout, failed.stderr)}"]
    # Some images have no nvidia-smi; then only torch's count is checked.
    return [] if answer is None else problems(answer, gpus)


def _last_line(*outputs: str) -> str:
    lines = [line.strip() for output in outputs for line in output.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it printed nothing"


def problems(xml: str, gpus: int | None = None) -> list[str]:
    """The faults of the GPUs in the output of `nvidia-smi -q -x`, a clause each.

    gpus: the expected number; None: any.
    """
    try:
        found = ElementTree.fromstring(xml).findall("gpu")  # noqa: S314
    except ElementTree.ParseError as error:
        return [f"nvidia-smi printed invalid XML ({error})"]
    missing = [] if gpus is None or len(found) >= gpus else [f"{len(found)} of {gpus} GPUs are visible"]
    return missing + [
        f"GPU {index} ({gpu.findtext('product_name', 'unknown').strip()}) {problem}"
        for index, gpu in enumerate(found)
        for problem in _problems_of(gpu)
    ]


def _problems_of(gpu: ElementTree.Element) -> Iterator[str]:
    if errors := _uncorrectable(gpu):
        yield f"has {errors:,} uncorrectable memory errors"
    # Two elements may have the same description.
    yield from dict.fromkeys(f"has {what}" for path, what in FLAGS.items() if _text(gpu, path) == "Yes")
    action = _text(gpu, "gpu_recovery_action")
    if action not in ("", "None", "N/A"):
        yield f"needs the driver's recovery action {action!r}"


def _uncorrectable(gpu: ElementTree.Element) -> int:
    """Uncorrectable errors since the driver was loaded.  GPUs before Turing count double-bit errors instead."""
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return 0
    named = [element.text for element in volatile.iter() if "uncorrectable" in element.tag]
    return sum(int(text) for text in [*named, volatile.findtext("double_bit/total")] if text and text.isdigit())


def _text(gpu: ElementTree.Element, path: str) -> str:
    return gpu.findtext(path, "").strip()


def xid_problems(xids: Sequence[int]) -> list[str]:
    """The faults of this machine in the kernel's log, a clause each."""
    return [f"its kernel logged NVIDIA's Xid {xid} ({XIDS[xid]})" for xid in sorted(set(xids)) if xid in XIDS]
