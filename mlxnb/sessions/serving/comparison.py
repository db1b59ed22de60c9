"""Why an answer's prompt did not reuse what an earlier one left: the code of ``explain``."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from dataclasses import dataclass

from mlxnb.errors import UnknownTurn
from mlxnb.records.diagnosis import diagnose
from mlxnb.records.ledger import Ledger
from mlxnb.records.turn import TurnRecord, Usage
from mlxnb.sessions.serving.answer import Answer

REMEMBERED = 10_000
"""Answers that can be compared with, newest first."""


@dataclass(frozen=True, slots=True)
class Miss:
    """What one answer missed of another's prefix.

    Attributes
    ----------
    reason
        One of `mlxnb.records.diagnosis.REASONS`; ``not_found``: there is no such answer for this
        caller and salt, or its tokens are no longer kept.
    tokens_lost
        Prompt tokens that could have been reused had it matched.
    common_tokens
        Tokens that both begin with.
    """

    reason: str
    tokens_lost: int = 0
    common_tokens: int = 0


class Comparisons:
    """Finds the turns of earlier answers by their ids."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._turns: OrderedDict[str, tuple[str, str, str]] = OrderedDict()

    def note(self, answer: Answer) -> None:
        """An answer has begun, which others may be compared with."""
        with self._lock:
            self._turns[_bare(answer.response_id)] = (
                answer.id,
                answer.ask.caller,
                answer.request.salt,
            )
            while len(self._turns) > REMEMBERED:
                self._turns.popitem(last=False)

    def miss(self, answer: Answer, response_id: str, caller: str) -> Miss | None:
        """What an answer missed of another's prefix; None: nothing."""
        other = self._record(response_id, caller, answer.request.salt)
        if other is None or not other.prompt:
            return Miss("not_found")
        record = answer.record
        if answer.turn is None:
            usage = Usage(answer.prompt_tokens, answer.cached_tokens)
            record = dataclasses.replace(record, usage=usage)
        found = diagnose(record, [other], answer.texts.tokenizer.decode)
        if found.reason is None:
            return None
        return Miss(found.reason, found.tokens_lost, found.common_tokens)

    def _record(self, response_id: str, caller: str, salt: str) -> TurnRecord | None:
        found = self._turns.get(_bare(response_id))
        if found is None or found[1:] != (caller, salt):
            return None
        try:
            return self._ledger[found[0]]
        except UnknownTurn:
            return None


def _bare(response_id: str) -> str:
    """An id without its prefix, which differs between protocols."""
    return response_id.partition("_")[2]
