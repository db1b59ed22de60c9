"""One request as a door hands it over: a whole conversation, in no protocol's terms."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlxnb.engine.sampling import Sampling
from mlxnb.records.turn import Source
from mlxnb.sessions.messages import Message


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which calls an answer may or must make.

    Attributes
    ----------
    mode
        ``auto``: as the model likes; ``none``: no call (the tools are not shown to the model);
        ``required``: at least one call.
    names
        The tools that may be called; empty: any of the request's.
    parallel
        Whether it may be more than one call.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request wants, validated and mapped.

    Attributes
    ----------
    model
        As asked for; aliases are resolved where models are found.
    messages
        What is new, in the template's form, oldest first: all of the conversation for a client
        that keeps it, and what follows ``previous`` for one that does not. The system text is in
        ``system``; system messages that stand further on are among them.
    system
        The system text; None: the previous response's, or the template's own.
    tools
        Tool definitions in the template's form, each as JSON, as `Options.tools`.
    sampling
        What the request says; the model's own wishes fill what it leaves open.
    caller
        Who asks, as the door has authenticated them; salts the prefix cache and owns what is
        stored.
    cache_salt
        Narrows sharing further.
    key
        ``prompt_cache_key``; never adds history.
    previous
        The response that this continues.
    store, retention_s
        Whether the answer can be continued and looked up, and for how long in seconds; None: as
        configured.
    thinking, thinking_budget
        Whether the model is to reason, and with how many tokens at most; None: its own choice.
    schema
        A JSON schema, as JSON, that the text must conform to; None: free text.
    continues_answer
        The last message is the beginning of the answer, which goes on from it.
    metadata
        The client's own notes, stored with the answer.
    arrived
        ``time.perf_counter()`` at arrival.
    """

    model: str
    messages: tuple[Message, ...]
    source: Source
    system: str | None = None
    tools: tuple[str, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = Sampling()  # noqa: RUF009 - frozen
    caller: str = ""
    cache_salt: str = ""
    key: str | None = None
    previous: str | None = None
    store: bool = False
    retention_s: int | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    schema: str | None = None
    continues_answer: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    arrived: float = field(default_factory=time.perf_counter)
