"""What a check found, as one line of JSON between processes and one row of the report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``good``: None where nothing could be checked; ``told`` is what was seen, or why not."""

    check: str
    good: bool | None
    told: str

    def line(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, line: str) -> Finding:
        """From another process. Raises ``ValueError`` or ``TypeError`` where it is none."""
        return cls(**json.loads(line))


def within(check: str, difference: float, bound: float) -> Finding:
    """A difference that must be below a bound; NaN is not."""
    return Finding(check, difference < bound, f"{difference:.1e}, allowed {bound:.0e}")
