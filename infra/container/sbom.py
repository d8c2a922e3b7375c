"""Print a software bill of materials (SBOM) of Python packages, as CycloneDX 1.6 JSON.

    python sbom.py            of the installed packages: /opt/ddp/sbom.cdx.json in the image
    python sbom.py LOCK       of the packages in a lock, with hashes of their files: infra/sbom.cdx.json in the wheel

It has no time and no serial number, so the same content gives the same bytes.  https://cyclonedx.org/docs/1.6/json/
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
    """The SBOM of `components`, for this version of the toolkit."""
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
    """The installed packages.  If two have the same name, the first, which Python imports."""
    found: dict[str, dict[str, Any]] = {}
    for distribution in distributions():
        name, version = distribution.metadata["Name"], distribution.version
        if not name or not version:  # a damaged distribution
            continue
        row = component(name, version)
        if licence := licence_of(distribution):
            row["licenses"] = [{"license": {"name": licence}}]
        found.setdefault(row["name"], row)
    return [row for name, row in found.items() if name != SUBJECT]


def licence_of(distribution: Distribution) -> str:
    """The licence in a package's metadata, on one line; "" if there is none."""
    metadata = distribution.metadata
    classifiers = [line for line in metadata.get_all("Classifier", []) if line.startswith("License :: ")]
    names = ", ".join(line.rpartition(" :: ")[2] for line in classifiers if not line.endswith("OSI Approved"))
    found = (metadata.get("License-Expression"), names, metadata.get("License"))
    return next((text.strip().splitlines()[0] for text in found if text and text.strip() not in UNKNOWN), "")


def locked(text: str) -> list[dict[str, Any]]:
    """The packages in a lock, with the SHA-256 of every file that may be installed."""
    rows = re.findall(r"^([\w.-]+)==([^\s;]+).*((?:\n[ \t]+--hash=.*)*)", text, re.MULTILINE)
    found = []
    for name, version, lines in rows:
        hashes = re.findall(r"sha256:([0-9a-f]{64})", lines)
        files = [{"type": "distribution", "url": f"https://pypi.org/project/{name}/{version}/",
                  "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes]}]  # fmt: skip
        found.append({**component(name, version), "externalReferences": files})
    return found


def toolkit_version() -> str:
    """The version of the installed toolkit, or "0"."""
    return next((one.version for one in distributions(name=SUBJECT)), "0")


def main(*words: str) -> None:
    components = locked(Path(words[0]).read_text()) if words else installed()
    print(json.dumps(document(components, toolkit_version()), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
