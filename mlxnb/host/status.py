"""A host at this moment: as one row for people, and as gauges for Prometheus."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from mlxnb.host.traffic import Traffic
from mlxnb.link.record import HostRecord
from mlxnb.records.frames import INSTANT, typed_frame

if TYPE_CHECKING:
    import pandas as pd

    from mlxnb.sessions.serving.service import Service

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


def status_frame(record: HostRecord, service: Service, traffic: Traffic | None) -> pd.DataFrame:
    """One row: where a host listens, what it has loaded, and what it does; none if it is off."""
    rows = []
    if traffic is not None:
        health = service.health()
        since = dt.datetime.fromtimestamp(record.created, dt.UTC)
        rows.append(
            (
                record.id,
                record.kind,
                record.url,
                ", ".join(record.models),
                health.status,
                traffic.requests,
                traffic.in_flight,
                health.waiting,
                since,
            )
        )
    return typed_frame(COLUMNS, rows)
