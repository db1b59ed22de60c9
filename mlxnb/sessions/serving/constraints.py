"""What a request demands of its answer's form, as logits processors."""

from __future__ import annotations

from mlxnb.engine.sampling import Processor
from mlxnb.errors import InvalidOption
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.serving.prompt import Prompt
from mlxnb.sessions.texts import Texts


def processors(ask: Ask, texts: Texts, prompt: Prompt) -> list[Processor]:
    """The processors that hold an answer to its form; none for a free one.

    Raises
    ------
    BadSchema
        The schema cannot be enforced.
    InvalidOption
        A form that is not enforced: it is refused rather than ignored.
    """
    for field, demanded in (
        ("text.format", ask.schema is not None),
        ("tool_choice", ask.tool_choice.mode == "required" or bool(ask.tool_choice.names)),
        ("parallel_tool_calls", bool(ask.tools) and not ask.tool_choice.parallel),
        ("thinking", ask.thinking_budget is not None),
    ):
        if demanded:
            raise InvalidOption(f"{field}: {texts.name} cannot be held to it", param=field)
    return []
