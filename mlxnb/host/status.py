"""A host at this moment, as one row for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mlxnb.link.record import HostRecord
from mlxnb.records.frames import INSTANT, typed_frame

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: dict[str, str] = {
    "host": "string",
    "kind": "string",
    "url": "string",
    "models": "string",
    "health": "string",
    "requests": "Int64",
    "in_flight": "Int64",
    "queued": "Int64",
    "since": INSTANT,
}


def status_frame(
    record: HostRecord,
    *,
    models: Iterable[str],
    health: str,
    requests: int,
    in_flight: int,
    queued: int,
) -> pd.DataFrame:
    """One row: where a host listens, what it has loaded, and what it does."""
    row = {
        "host": record.id,
        "kind": record.kind,
        "url": record.url,
        "models": ", ".join(models),
        "health": health,
        "requests": requests,
        "in_flight": in_flight,
        "queued": queued,
        "since": dt.datetime.fromtimestamp(record.created, dt.UTC),
    }
    return typed_frame(COLUMNS, [[row[name] for name in COLUMNS]])


def no_status() -> pd.DataFrame:
    """The same columns and no row, of a host that is off."""
    return typed_frame(COLUMNS, [])
