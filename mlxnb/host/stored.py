"""Stored responses: looked up, forgotten, stopped. Another caller's are not there (W65)."""

from __future__ import annotations

from mlxnb.host.route import Route
from mlxnb.host.sight import Sight
from mlxnb.wire.errors import invalid
from mlxnb.wire.responses import deleted, page


class Stored(Route):
    """``GET`` and ``DELETE v1/responses/{id}``."""

    shape = "openai"

    async def get(self, response_id: str) -> None:
        """Answer with the response as it was sent."""
        if self.get_query_argument("stream", "false") == "true":
            raise invalid("a stored response is not streamed again", "stream")
        service, caller = self.context.service, Sight(self.caller).caller
        stored = await self.context.blocking(lambda: service.stored(response_id, caller))
        self.answer(stored.response)

    async def delete(self, response_id: str) -> None:
        """Forget it, and its KV."""
        service, caller = self.context.service, Sight(self.caller).caller
        await self.context.blocking(lambda: service.delete(response_id, caller))
        self.answer(deleted(response_id))


class Cancel(Route):
    """``POST v1/responses/{id}/cancel``: stop a response that is being made."""

    shape = "openai"

    async def post(self, response_id: str) -> None:
        """Stop it; one that has ended is answered as it was sent."""
        service, caller = self.context.service, Sight(self.caller).caller
        exchange = self.context.traffic.find(response_id)
        running = await self.context.blocking(lambda: service.cancel(response_id, caller))
        if running and exchange is not None:
            self.answer({**exchange.so_far(), "status": "cancelled"})
            return
        stored = await self.context.blocking(lambda: service.stored(response_id, caller))
        self.answer(stored.response)


class InputItems(Route):
    """``GET v1/responses/{id}/input_items``: what was new in the request."""

    shape = "openai"

    async def get(self, response_id: str) -> None:
        """Answer with a page of them."""
        service, caller = self.context.service, Sight(self.caller).caller
        stored = await self.context.blocking(lambda: service.stored(response_id, caller))
        query = {name: self.get_query_argument(name) for name in self._given()}
        self.answer(page([dict(item) for item in stored.input_items], **query))

    def _given(self) -> list[str]:
        return [n for n in ("limit", "order", "after") if n in self.request.query_arguments]
