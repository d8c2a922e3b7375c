"""A list of software, CycloneDX 1.6 as JSON: of the Python packages that are installed here, or of a lock's.

    python sbom.py            what is installed: the image has it at /opt/ddp/sbom.cdx.json
    python sbom.py LOCK       what a lock holds, with the hashes of its files: the wheel has it as infra/sbom.cdx.json

It has no time and no serial number, so that the same content gives the same bytes.  https://cyclonedx.org/docs/1.6/json/
"""

import json
import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

SUBJECT = "aws-ddp-toolkit"
UNKNOWN = {"", "UNKNOWN", "unknown"}


def document(components: Iterable[dict[str, Any]], version: str) -> dict[str, Any]:
    """The list of `components`, as part of the toolkit's `version`."""
    by_ref = {component["bom-ref"]: component for component in components}
    subject = {"type": "application", "bom-ref": SUBJECT, "name": SUBJECT, "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": [by_ref[ref] for ref in sorted(by_ref)],
    }


def component(name: str, version: str) -> dict[str, Any]:
    canonical = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{canonical}@{version.replace('+', '%2B')}"
    return {"type": "library", "bom-ref": purl, "name": canonical, "version": version, "purl": purl}


def installed() -> list[dict[str, Any]]:
    """The packages that Python finds here; of two of one name the first, as it imports that one."""
    found: dict[str, dict[str, Any]] = {}
    for distribution in distributions():
        name, version = distribution.metadata["Name"], distribution.version
        if not name or not version:  # a damaged one
            continue
        row = component(name, version)
        if licence := licence_of(distribution):
            row["licenses"] = [{"license": {"name": licence}}]
        found.setdefault(row["name"], row)
    return [row for name, row in found.items() if name != SUBJECT]


def licence_of(distribution: Distribution) -> str:
    """The licence in a package's own words, in one line; "" if it says nothing."""
    metadata = distribution.metadata
    trove = [line for line in metadata.get_all("Classifier", []) if line.startswith("License :: ")]
    of_trove = ", ".join(line.rpartition(" :: ")[2] for line in trove if not line.endswith("OSI Approved"))
    said = (metadata.get("License-Expression"), of_trove, metadata.get("License"))
    return next((text.strip().splitlines()[0] for text in said if text and text.strip() not in UNKNOWN), "")


def locked(text: str) -> list[dict[str, Any]]:
    """The packages of a lock, with the SHA-256 of every file that may be installed."""
    rows = re.findall(r"^([\w.-]+)==([^\s;]+).*((?:\n[ \t]+--hash=.*)*)", text, re.MULTILINE)
    found = []
    for name, version, lines in rows:
        hashes = re.findall(r"sha256:([0-9a-f]{64})", lines)
        files = [{"type": "distribution", "url": f"https://pypi.org/project/{name}/{version}/",
                  "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes]}]  # fmt: skip
        found.append({**component(name, version), "externalReferences": files})
    return found


def version_of_subject() -> str:
    """Of the toolkit that is installed here."""
    return next((one.version for one in distributions(name=SUBJECT)), "0")


def main(*words: str) -> None:
    components = locked(Path(words[0]).read_text()) if words else installed()
    print(json.dumps(document(components, version_of_subject()), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
