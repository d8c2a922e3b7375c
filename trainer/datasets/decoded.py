"""Decoded small sets on disk: the second start reads them and decodes nothing."""

from collections.abc import Callable
from pathlib import Path

from trainer.datasets.cache import Content, recall
from trainer.datasets.resident import Decoded, Images


def recall_decoded(path: Path, fingerprint: str, decode: Callable[[], Decoded]) -> Decoded:
    """The set at `path` if it was made of what `fingerprint` describes, else what `decode` returns, then kept."""
    content = recall(
        path,
        is_current=lambda found: found.get("fingerprint") == fingerprint,
        build=lambda: {"fingerprint": fingerprint} | _packed(decode()),
    )
    return Decoded(Images(**content["train"]), Images(**content["evaluation"]), content["classes"])


def _packed(decoded: Decoded) -> Content:
    halves = {"train": decoded.train, "evaluation": decoded.evaluation}
    packed = {k: {"pixels": v.pixels, "labels": v.labels, "bad": dict(v.bad)} for k, v in halves.items()}
    return {**packed, "classes": decoded.classes}
