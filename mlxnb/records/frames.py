"""Records as DataFrames whose columns and dtypes are the same whatever is in them.

Numbers that may be unknown are nullable (Int64, Float64); phases of the clock, which are
always known, are float64. pandas is imported when the first frame is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from mlxnb.records.block_row import BlockRow
from mlxnb.records.memory_row import MemoryRow
from mlxnb.records.session_row import SessionRow
from mlxnb.records.turn import TurnRecord

if TYPE_CHECKING:
    import pandas as pd

INSTANT: Final = "datetime64[us, UTC]"

TURNS: dict[str, str] = {
    "turn_id": "string",
    "session": "string",
    "model": "string",
    "source": "string",
    "host": "string",
    "started_at": INSTANT,
    "cache": "string",
    "prompt_tokens": "Int64",
    "cached_tokens": "Int64",
    "prefill_tokens": "Int64",
    "output_tokens": "Int64",
    "reasoning_tokens": "Int64",
    "reuse": "float64",
    "pre_inference_s": "float64",
    "queue_s": "float64",
    "resolve_s": "float64",
    "load_wait_s": "float64",
    "load_owner": "boolean",
    "prefill_s": "float64",
    "ttft_s": "Float64",
    "decode_s": "float64",
    "total_s": "float64",
    "prefill_tps": "Float64",
    "decode_tps": "Float64",
    "saved_s": "Float64",
    "finish_reason": "string",
    "miss_reason": "string",
    "diverged_at": "Int64",
    "error": "string",
}
BLOCKS: dict[str, str] = {
    "block_id": "string",
    "parent_id": "string",
    "model": "string",
    "kind": "string",
    "start": "Int64",
    "tokens": "Int64",
    "refs": "Int64",
    "hits": "Int64",
    "bytes": "Int64",
    "tier": "string",
    "last_used": INSTANT,
    "pinned": "boolean",
    "preview": "string",
}
MORE_BLOCKS: dict[str, str] = {"evict_order": "Int64", "owner": "string"}
SESSIONS: dict[str, str] = {
    "name": "string",
    "model": "string",
    "turns": "Int64",
    "tokens": "Int64",
    "cached_tokens": "Int64",
    "hot": "boolean",
    "history": "string",
    "forked_from": "string",
    "created_at": INSTANT,
    "last_used": INSTANT,
}
MODELS: dict[str, str] = {
    "name": "string",
    "family": "string",
    "parameters": "Int64",
    "quantization": "string",
    "context_length": "Int64",
    "bytes": "Int64",
    "loaded": "boolean",
    "batchable": "boolean",
    "reuse": "string",
    "fingerprint": "string",
    "path": "string",
    "kv_bits": "Int64",
}
MEMORY: dict[str, str] = {
    "weights_bytes": "Int64",
    "kv_bytes": "Int64",
    "snapshots_bytes": "Int64",
    "pool_bytes": "Int64",
    "total_bytes": "Int64",
    "limit_bytes": "Int64",
    "budget_bytes": "Int64",
    "available_bytes": "Int64",
    "reserve_bytes": "Int64",
}
_SCALARS = {"str": "string", "int": "Int64", "float": "Float64", "bool": "boolean"}


def typed_frame(columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """A frame of these columns (name → dtype), the same for no rows at all.

    ``rows`` hold one value for each column, in order; None where there is none.
    """
    import pandas as pd

    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    assert len(values) == len(columns), f"{len(values)} values for {len(columns)} columns"
    return pd.DataFrame(
        {
            name: _instants(column) if dtype == INSTANT else pd.Series(list(column), dtype=dtype)
            for (name, dtype), column in zip(columns.items(), values, strict=True)
        }
    )


def _instants(values: Sequence[Any]) -> pd.Series[pd.Timestamp]:
    """Instants of any time zone as UTC; None is NaT."""
    import pandas as pd

    return pd.Series(pd.to_datetime(list(values), utc=True)).astype(INSTANT)


def turns_frame(records: Iterable[TurnRecord], wide: bool = False) -> pd.DataFrame:
    """One row a turn, in the order given; times in seconds, rates in tokens per second.

    ``prompt_tokens == cached_tokens + prefill_tokens``; ``reuse`` is cached over prompt (0 to
    1). ``decode_tps`` leaves out the first token, which prefill makes, and is NA for a single
    one; ``prefill_tps`` is NA where no first token came. ``wide`` appends the records' other
    fields.
    """
    extra = _wide_columns() if wide else {}
    rows = ([*_turn_row(record), *(getattr(record, name) for name in extra)] for record in records)
    return typed_frame(TURNS | extra, rows)


def _wide_columns() -> dict[str, str]:
    """The scalar fields of a record that are not among the fixed columns."""
    types = {field.name: str(field.type).split(" ")[0] for field in fields(TurnRecord)}
    return {
        name: _SCALARS[kind]
        for name, kind in types.items()
        if name not in TURNS and kind in _SCALARS
    }


def _turn_row(record: TurnRecord) -> list[Any]:
    """The values of the fixed columns: from the record, its usage and its timing."""
    usage, timing = record.usage, record.timing
    rates = {
        "reuse": usage.cached_tokens / usage.prompt_tokens if usage.prompt_tokens else 0.0,
        "prefill_tps": None
        if timing.ttft_s is None
        else _rate(usage.prefill_tokens, timing.prefill_s),
        "decode_tps": _rate(usage.output_tokens - 1, timing.decode_s),
    }
    return [rates[name] if name in rates else _field(name, record, usage, timing) for name in TURNS]


def _field(name: str, *owners: object) -> Any:
    """The attribute of that name of the first owner that has it."""
    return next(getattr(owner, name) for owner in owners if hasattr(owner, name))


def _rate(tokens: int, seconds: float) -> float | None:
    """Tokens per second; None where there is nothing to divide."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def prefix_frame(rows: Iterable[BlockRow], wide: bool = False) -> pd.DataFrame:
    """One row a block of the prefix cache.

    ``wide`` appends ``evict_order``, 1 for what would go next (NA: it cannot go now), and
    ``owner``, the session that goes on with a hot cache.
    """
    columns = BLOCKS | (MORE_BLOCKS if wide else {})
    return typed_frame(columns, ([getattr(row, name) for name in columns] for row in rows))


def sessions_frame(rows: Iterable[SessionRow]) -> pd.DataFrame:
    """One row a session."""
    return typed_frame(SESSIONS, ([getattr(row, name) for name in SESSIONS] for row in rows))


def memory_frame(rows: Iterable[MemoryRow]) -> pd.DataFrame:
    """One row an engine."""
    return typed_frame(MEMORY, ([getattr(row, name) for name in MEMORY] for row in rows))


def models_frame(infos: Iterable[object]) -> pd.DataFrame:
    """One row a model, from anything that has the columns' names as attributes.

    ``parameters`` and ``context_length`` may be None where they are unknown, ``batchable``
    before the model was loaded.
    """
    return typed_frame(MODELS, ([getattr(info, name) for name in MODELS] for info in infos))
