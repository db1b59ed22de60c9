"""Tokens counted and nothing generated (W51): beside the queue, not in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlxnb.host.context import Context
from mlxnb.host.route import Route, Shape
from mlxnb.host.sight import Sight
from mlxnb.sessions.ask import Ask
from mlxnb.sessions.serving.service import Service
from mlxnb.wire import messages, responses
from mlxnb.wire.body import read

Understand = Callable[[Service, Any, str], Ask]


class Count(Route):
    """``POST`` of a request that asks how many tokens its prompt has."""

    def initialize(  # type: ignore[override]
        self,
        context: Context,
        shape: Shape,
        understand: Understand,
        counted: Callable[[int], dict[str, Any]],
    ) -> None:
        """Take what all handlers share, and the protocol."""
        super().initialize(context)
        self.shape, self._understand, self._counted = shape, understand, counted

    async def post(self) -> None:
        """Count."""
        service, caller = self.context.service, Sight(self.caller).caller

        def count() -> int:
            return service.count(self._understand(service, read(self.request.body), caller))

        self.answer(self._counted(await self.context.blocking(count)))


def _responses(service: Service, body: Any, caller: str) -> Ask:
    request = responses.parse_count(body)
    previous = responses.previous_id(request)
    chain = None if previous is None else service.chain(previous, caller)
    return responses.ask(request, chain, caller)


def _messages(service: Service, body: Any, caller: str) -> Ask:
    return messages.ask(messages.parse_count(body), caller)


COUNTS: dict[str, dict[str, Any]] = {
    "/v1/responses/input_tokens": {
        "shape": "openai",
        "understand": _responses,
        "counted": responses.counted,
    },
    "/v1/messages/count_tokens": {
        "shape": "anthropic",
        "understand": _messages,
        "counted": lambda tokens: {"input_tokens": tokens},
    },
}
"""By path: the keyword arguments of `Count`."""
