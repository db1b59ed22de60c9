"""The page ``docs/families.md``: what each architecture of mlx-lm was measured to do.

``python -m families.table``, in ``tests``, measures all and writes it.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from architectures import NOT_BUILT, VARIANTS, WINDOW, architectures

from families.measure import PARITY, SHOWS, Measured, measure

PAGE = Path(__file__).parents[2] / "docs" / "families.md"
APART = {
    "phi3small": "adds its mask to the scores as numbers: tokens of a prompt see later ones",
    "plamo3": "lets tokens of a prompt see one key more than its cache of a window keeps",
}
"""Why what goes on from a cache differs from a cold run: in mlx-lm, whoever keeps the cache."""
BEFORE = f"""\
# Architectures

What every architecture of mlx-lm {version("mlx-lm")} keeps of a prompt, how that can be reused, and
whether it is sound. `python -m families.table`, in `tests`, measures it and writes this page; the
tests measure it again and compare.

Each was built tiny from its own settings, with random weights in float32, and run. Windows and
chunks are {WINDOW} tokens long. A name with `+windows` is the same architecture with the windows
that its settings allow. Bytes are those of the tiny models: they say what grows with a conversation
and what does not, and nothing about the models that are released.

- **caches**: `kv` keeps keys and values of all tokens, `window` those of the last ones, `chunked`
  those of the last chunk; `arrays` are a state that each token changes; `other` is none of these.
  Where a layer has several, each counts.
- **reuse**: `prefix`, up to any token that two prompts share; `checkpoint`, from where the caches
  were saved, as something in them cannot be taken back; `none`.
- **batched**: whether two rows of unequal length answer in a batch as they do alone.
- **parity**: the largest gap between the logits after a cache that was saved, while what it was
  saved of went on, and those of one cold run; relative to the largest logit.
- **wrong token**: the smallest gap where one token of the prefix was another. That it is large says
  that an error would have shown.
- **bytes a token**: of the `kv` caches. **Fixed bytes**: of full windows and chunks, and of states.

| architecture | caches | reuse | batched | parity | wrong token | bytes a token | fixed bytes |
| --- | --- | --- | --- | --- | --- | ---: | ---: |
"""
BETWEEN = """
## Not at parity

| architecture | why |
| --- | --- |
"""
AFTER = """
## Not built

| architecture | why |
| --- | --- |
"""


def built() -> list[str]:
    """What has a row: architectures, and variants of some."""
    return sorted({*architectures(), *VARIANTS} - NOT_BUILT.keys())


def line_of(row: Measured) -> str:
    """A row of the table. Of a gap it says only on which side of a bound it lies."""
    caches = ", ".join(f"{number} {kind}" for kind, number in sorted(row.kinds.items()))
    fixed = "?" if row.fixed is None else f"{row.fixed}"
    return (
        f"| `{row.name}` | {caches} | {row.reuse} | {'yes' if row.batchable else 'no'} "
        f"| {_side(row.parity, PARITY)} | {_side(row.control, SHOWS)} "
        f"| {row.per_token} | {fixed} |"
    )


def _side(gap: float, bound: float) -> str:
    return f"{'<' if gap < bound else '>'} {bound:.0e}".replace("e-0", "e-")


def page_of(lines: list[str]) -> str:
    """The whole page with these rows."""
    return (
        BEFORE + "\n".join(lines) + "\n" + BETWEEN + _reasons(APART) + AFTER + _reasons(NOT_BUILT)
    )


def _reasons(whys: dict[str, str]) -> str:
    return "".join(f"| `{name}` | {why} |\n" for name, why in sorted(whys.items()))


def lines_in(page: str) -> dict[str, str]:
    """The rows of a page's first table, by name."""
    rows = page.partition("\n## ")[0].splitlines()
    return {row.split("`")[1]: row for row in rows if row.startswith("| `")}


if __name__ == "__main__":
    PAGE.write_text(page_of([line_of(measure(name)) for name in built()]), "utf-8")
