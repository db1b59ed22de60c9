"""Token counts of a completion."""

from __future__ import annotations

from typing import Any

from mlxnb.records.turn import Usage


def chat_usage(usage: Usage) -> dict[str, Any]:
    """``usage`` of a completion: the prompt is the whole one, its cached part included."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
