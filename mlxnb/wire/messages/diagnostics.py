"""Why the cache did not serve what an earlier message left in it, in the vendor's words."""

from __future__ import annotations

from typing import Any

from mlxnb.wire.answer import Miss

_TYPES = {
    "system_changed": "system_changed",
    "system_volatile": "system_changed",
    "tools_changed": "tools_changed",
    "history_edited": "messages_changed",
    "template_rewrote": "messages_changed",
    "new_conversation": "messages_changed",
    "other_model": "model_changed",
    "not_found": "previous_message_not_found",
}
_WITHOUT_COUNT = ("previous_message_not_found", "unavailable")


def diagnostics(miss: Miss | None) -> dict[str, Any] | None:
    """``diagnostics`` of a message; None: nothing was missed.

    Reasons that lie in the cache and not in the request are ``unavailable`` to the vendor's
    clients: the turn's own report says more.
    """
    if miss is None or miss.reason is None:
        return None
    kind = _TYPES.get(miss.reason, "unavailable")
    counted = {} if kind in _WITHOUT_COUNT else {"cache_missed_input_tokens": miss.tokens_lost}
    return {"cache_miss_reason": {"type": kind, **counted}}
