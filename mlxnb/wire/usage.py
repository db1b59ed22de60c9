"""Token counts and timings as the protocols and their clients read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from mlxnb.records.turn import TurnRecord, Usage


def openai_usage(usage: Usage) -> dict[str, Any]:
    """``usage`` of the Responses API.

    ``cache_write_tokens`` are those that a client paid for to keep; here nothing is set apart.
    """
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def anthropic_usage(usage: Usage) -> dict[str, Any]:
    """``usage`` of the Messages API: the three input counts add up to the prompt."""
    return {
        "input_tokens": usage.prefill_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def timings(record: TurnRecord, tuning: Mapping[str, float]) -> dict[str, float | bool]:
    """Extensions inside ``usage``: the numbers of the turns frame, finite ones alone.

    Milliseconds and tokens a second. ``time_to_first_token_ms`` runs from admission,
    ``server_total_time_to_first_token_ms`` from arrival.

    Parameters
    ----------
    record
        Of a turn that has ended.
    tuning
        What the engine ran with, by name; each becomes ``server_{name}``.
    """
    found = dict(_phases(record))
    found |= {f"server_{name}": found[name] for name in _ALIASED if name in found}
    found |= {f"server_{name}": value for name, value in tuning.items()}
    finite = {name: value for name, value in found.items() if value is not None and _finite(value)}
    return finite | {"server_load_owner": record.timing.load_owner}


_ALIASED = ("time_to_first_token_ms", "prefill_tokens_per_second", "decode_tokens_per_second")


def _phases(record: TurnRecord) -> Iterator[tuple[str, float | None]]:
    usage, timing = record.usage, record.timing
    answered = timing.ttft_s is not None
    yield "time_to_first_token_ms", _ms(timing.prefill_s) if answered else None
    yield "server_total_time_to_first_token_ms", _ms(timing.ttft_s)
    rate = _rate(usage.prefill_tokens, timing.prefill_s) if answered else None
    yield "prefill_tokens_per_second", rate
    # the first token is made by prefill
    yield "decode_tokens_per_second", _rate(usage.output_tokens - 1, timing.decode_s)
    yield "server_inference_elapsed_ms", _ms(timing.prefill_s + timing.decode_s)
    yield "prefill_input_tokens", usage.prefill_tokens
    yield "cached_prefix_tokens", usage.cached_tokens or None
    yield "server_queue_ms", _ms(timing.queue_s)
    yield "server_pre_inference_ms", _ms(timing.pre_inference_s)
    yield "server_model_resolve_ms", _ms(timing.resolve_s)
    yield "server_load_wait_ms", _ms(timing.load_wait_s)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def _finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]
