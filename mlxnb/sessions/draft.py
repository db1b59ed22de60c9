"""A turn that is about to start: what is said, and the history that it goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlxnb.engine.request import Request
from mlxnb.records.tokens import common_prefix, pack
from mlxnb.records.turn import Turn
from mlxnb.sessions.history import History
from mlxnb.sessions.kept import kept_output
from mlxnb.sessions.messages import Message, answer_message, result_message
from mlxnb.sessions.template import ChatTemplate, Rendered


@dataclass(frozen=True, slots=True)
class Draft:
    """A history, the messages that come next, and the prompt that both make.

    ``key`` names the content of the model that the prompt is for.
    """

    history: History
    new: Sequence[Message]
    prompt: Rendered
    template: ChatTemplate
    key: str

    @classmethod
    def of(
        cls,
        history: History,
        new: Sequence[Message],
        template: ChatTemplate,
        tools: list[Any] | None,
        key: str,
    ) -> Draft:
        """Render the next prompt.

        Raises
        ------
        TemplateFailed
            The template refuses the conversation.
        """
        return cls(history, new, history.prompt(new, template, tools), template, key)

    def settled(self, request: Request, turn: Turn, exact: bool) -> History:
        """The history with the turn that has come of this; its tokens are kept if ``exact``."""
        answer = answer_message(turn)
        if not exact:
            return self.history.after(self.new, answer, None, [])
        output = kept_output(request, self.template.literal)
        return self.history.after(self.new, answer, self.prompt, output)


def anything(history: History, text: str) -> list[Message]:
    """Messages that may come next and say ``text``: results, where calls are outstanding."""
    results = [result_message(i, name, text, False) for i, name in history.pending.items()]
    return results or [{"role": "user", "content": text}]


def common_head(drafts: Sequence[Draft]) -> Rendered:
    """The tokens that the prompts of two drafts share from their beginning."""
    one, two = (draft.prompt for draft in drafts)
    shared = common_prefix(pack(one.tokens), pack(two.tokens))
    spans = [replace(s, end=min(s.end, shared)) for s in one.spans if s.start < shared]
    return Rendered(one.tokens[:shared], spans, False)
