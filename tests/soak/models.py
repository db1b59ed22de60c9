"""The tiny models of a soak."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parity.families import FAMILIES, WIDE, Family
from parity.spy import COARSE, TOLERANCE


@dataclass(frozen=True, slots=True)
class Model:
    """A folder, in how many bits its KV is kept, and how close logits have to be."""

    folder: Path
    kv_bits: int | None = None
    tolerance: float = TOLERANCE


def make(name: str, parent: Path) -> Model:
    """Write a family's model; ``llama:8`` keeps its KV in 8 bits."""
    family, _, bits = name.partition(":")
    folder = parent / name.replace(":", "-")
    if bits:
        return Model(Family(family, WIDE).save(folder), int(bits), COARSE)
    return Model(FAMILIES[family].save(folder))
