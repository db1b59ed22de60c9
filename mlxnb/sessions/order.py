"""A turn that is to be run, whichever door it came through."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlxnb.engine.form import Form
from mlxnb.engine.sampling import Sampling
from mlxnb.records.turn import Source
from mlxnb.sessions.template import Rendered


@dataclass(frozen=True, slots=True)
class Order:
    """A prompt, and how it is to be answered.

    Attributes
    ----------
    prompt
        All tokens, those of a history included.
    sampling
        With nothing left open.
    arrived
        ``time.perf_counter()`` at arrival.
    session
        What the turn's row names as its session.
    owner
        Who continues the KV afterwards; None: anybody may.
    salt
        Whose KV it shares.
    caller
        Who asked, where it came over HTTP; for the row.
    history
        ``exact`` or ``template``, for the row.
    tools
        Tool definitions, each as JSON.
    form
        What the answer must look like; None: anything.
    thinking
        Whether the model was told to reason; None: its own choice.
    begun
        The last tokens of the prompt, where they are the beginning of the answer.
    """

    prompt: Rendered
    sampling: Sampling
    source: Source
    arrived: float
    session: str | None = None
    owner: str | None = None
    salt: str = ""
    caller: str = ""
    reuse: bool = True
    history: str = "exact"
    tools: tuple[str, ...] = ()
    form: Form | None = None
    thinking: bool | None = None
    begun: tuple[int, ...] = ()

    @property
    def reasons(self) -> bool | None:
        """Whether the prompt has opened the reasoning; None: the model may open it itself."""
        if self.prompt.opens_reasoning:
            return True
        return False if self.thinking is False else None


def tool_list(tools: Sequence[str]) -> list[Any] | None:
    """Tool definitions as the template takes them."""
    return [json.loads(tool) for tool in tools] or None


def tools_digest(tools: Sequence[str]) -> str:
    """The tools' identity; empty without any."""
    packed = "\n".join(tools).encode()
    return hashlib.blake2b(packed, digest_size=8).hexdigest() if tools else ""
