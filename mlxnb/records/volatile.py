"""Recognises text that changes by itself: dates, times, ids and counters.

Works on the text around a first difference. A number counts as a counter only if it is all
that changed; a date, time or id in front defeats reuse whatever else changed after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[ap]\.?m\b)?"
_ZONE = r"(?:\s?(?:z|utc|gmt)\b|\s?[+-]\d{2}:?\d{2})?"
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)?\b"
_DATE = (
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[t ]\s*{_CLOCK}{_ZONE})?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})\b"
    rf"|(?:{_DAY}\.?,?\s+)?(?:{_MONTH}\.?\s+\d{{4}}\b"
    rf"|{_ORDINAL}(?:\s+of)?\s+{_MONTH}(?:,?\s+\d{{4}}\b)?"
    rf"|{_MONTH}\.?\s+{_ORDINAL}(?:,?\s+\d{{4}}\b)?)"
    rf"|{_DAY}"
)
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_ID = (
    r"(?:[a-z]{2,12}[_-])?(?:"
    r"(?=[0-9a-f]*[0-9])[0-9a-f]{8,}"
    r"|(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{6,}"
    r"|(?=[a-z0-9]*[0-9])(?=[a-z0-9]*[a-z])[a-z0-9]{12,})"
    r"|[a-z]{2,12}_(?=[a-z0-9]*[0-9])[a-z0-9]{6,}"
)
_PATTERNS = {
    kind: re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", re.IGNORECASE)
    for kind, pattern in {
        "uuid": _UUID,
        "date": _DATE,
        "time": rf"{_CLOCK}{_ZONE}|1\d{{9}}(?:\d{{3}})?(?:\.\d+)?",
        "id": _ID,
        "counter": r"\d+(?:[.,]\d+)*",
    }.items()
}
_AROUND = 80
"""Characters on both sides of a difference in which its date or id must lie."""


@dataclass(frozen=True, slots=True)
class Change:
    """What changed by itself: ``kind`` is uuid | date | time | id | counter."""

    kind: str
    before: str
    after: str


def volatile_change(before: str, after: str) -> Change | None:
    """The first difference of two texts, if it is of the kind that changes by itself."""
    pairs = enumerate(zip(before, after, strict=False))
    at = next((i for i, (old, new) in pairs if old != new), min(len(before), len(after)))
    low = max(0, at - _AROUND)
    for kind, pattern in _PATTERNS.items():
        old = _match_over(pattern, before[low : at + _AROUND], at - low)
        new = _match_over(pattern, after[low : at + _AROUND], at - low)
        if old is None or new is None or old[0] == new[0]:
            continue
        if kind != "counter" or masked(before) == masked(after):
            return Change(kind, old[0], new[0])
    return None


def masked(text: str) -> str:
    """The text with everything that changes by itself replaced by its kind."""
    for kind, pattern in _PATTERNS.items():
        text = pattern.sub(f"<{kind}>", text)
    return text


def _match_over(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str] | None:
    """The match that contains ``at`` or ends there (9 → 10 differ after the 9's place)."""
    return next((m for m in pattern.finditer(text) if m.start() <= at <= m.end()), None)
