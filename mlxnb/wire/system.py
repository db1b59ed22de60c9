"""The system text of a request, without the line by which a client is billed."""

from __future__ import annotations

from collections.abc import Sequence

BILLING = "x-anthropic-billing-header"
"""A block or a first line that begins so changes with each request and says nothing to a model;
in a prompt it would end the reuse of everything behind it (C27)."""


def system_text(system: str | Sequence[str]) -> str | None:
    """A system text, or the texts of its blocks joined; None if nothing is left of it.

    Among several blocks the header has one of its own, which is dropped; in one text it is the
    first line, and what follows that is kept.
    """
    if isinstance(system, str) or len(system) == 1:
        return without_billing(system if isinstance(system, str) else system[0])
    kept = [text for text in system if not text.lstrip().startswith(BILLING)]
    return "\n".join(kept) if kept else None


def without_billing(text: str) -> str | None:
    """The text without a billing header in its first line; None if there is nothing else."""
    if not text.lstrip().startswith(BILLING):
        return text
    rest = text.lstrip().partition("\n")[2].lstrip("\n")
    return rest if rest.strip() else None
