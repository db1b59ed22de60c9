"""A doctor's report in Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from mlxnb.doctor.finding import Finding

WORDS = {True: "good", False: "**bad**", None: "–"}
ASK = (
    "The project has no Metal hardware: if this was a Mac, please send this report to its issue "
    "tracker, good or bad. It holds nothing that you typed, and no path of yours."
)


def report(facts: dict[str, str], findings: list[Finding], bench: str) -> str:
    """Facts, findings, figures, and what they come to."""
    bad = sum(finding.good is False for finding in findings)
    good = sum(finding.good is True for finding in findings)
    parts = [
        "# mlxnb doctor",
        _table(("", ""), facts.items()),
        "## Checks",
        _table(("check", "result", ""), ((f.check, WORDS[f.good], f.told) for f in findings)),
        *(["## Bench", f"```\n{bench}\n```"] if bench else []),
        f"{good} checks were good, {bad} bad. {ASK}",
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
