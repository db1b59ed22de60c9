"""What a comparison with an earlier response has shown, in the vendor's words."""

from __future__ import annotations

from typing import Any

from mlxnb.wire.answer import Miss

_REASONS = {
    "other_model": "model_changed",
    "tools_changed": "tools_changed",
    "system_changed": "input_changed",
    "system_volatile": "input_changed",
    "history_edited": "input_changed",
    "template_rewrote": "input_changed",
    "new_conversation": "input_changed",
}


def diagnostics(miss: Miss | None) -> dict[str, Any]:
    """``prompt_cache_diagnostics``; None: nothing was missed.

    Reasons that lie in the cache and not in the request are ``unavailable`` to the vendor's
    clients: the turn's own report says more.
    """
    if miss is None or miss.reason is None:
        return {"type": "cache_hit"}
    if miss.reason == "not_found":
        return {"type": "comparison_response_not_found"}
    if miss.reason not in _REASONS:
        return {"type": "unavailable"}
    return {
        "type": "cache_miss",
        "reason": _REASONS[miss.reason],
        "cache_missed_tokens": miss.tokens_lost,
        "comparison_reusable_tokens": miss.common_tokens,
    }
