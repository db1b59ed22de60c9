"""``GET v1/models``: what can be asked for, in the shape that the caller's vendor has."""

from __future__ import annotations

import datetime as dt
from typing import Any

from mlxnb.host.route import Route
from mlxnb.sessions.serving.models import ModelCard
from mlxnb.wire.errors import WireError

LIMIT = 20
MAX_LIMIT = 1000


class ModelList(Route):
    """All models: OpenAI's list, or Anthropic's where ``anthropic-version`` is sent."""

    async def get(self) -> None:
        """Answer with cards."""
        cards = await self.context.blocking(self.context.service.models)
        if self.is_anthropic:
            self.answer(self._page([_anthropic(card) for card in cards]))
        else:
            self.answer({"object": "list", "data": [_openai(card) for card in cards]})

    def _page(self, models: list[dict[str, Any]]) -> dict[str, Any]:
        """Anthropic's pages: ``limit`` models after ``after_id``, or before ``before_id``."""
        limit = self._limit()
        after, before = self._place("after_id", models), self._place("before_id", models)
        start = 0 if after is None else after + 1
        end = len(models) if before is None else before
        if before is not None and after is None:
            start = max(0, end - limit)
            more = start > 0
        else:
            more = start + limit < end
        page = models[start:end][:limit]
        return {
            "data": page,
            "has_more": more,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
        }

    def _limit(self) -> int:
        text = self.get_query_argument("limit", str(LIMIT))
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_LIMIT):
            raise WireError(400, f"limit is an integer in [1, {MAX_LIMIT}]", param="limit")
        return int(text)

    def _place(self, name: str, models: list[dict[str, Any]]) -> int | None:
        wanted = self.get_query_argument(name, None)
        if wanted is None:
            return None
        for number, model in enumerate(models):
            if model["id"] == wanted:
                return number
        raise WireError(400, f"{name} names no model", param=name)


class ModelFacts(Route):
    """``GET v1/models/{id}``: one of them, under an alias too."""

    async def get(self, name: str) -> None:
        """Answer with one card."""
        card = await self.context.blocking(lambda: self.context.service.model(name))
        self.answer(_anthropic(card) if self.is_anthropic else _openai(card))


def _openai(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": "mlxnb",
        "context_length": card.context_length,
        "loaded": card.loaded,
    }


def _anthropic(card: ModelCard) -> dict[str, Any]:
    created = dt.datetime.fromtimestamp(card.created, dt.UTC)
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": created.isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": card.context_length,
        "max_tokens": card.context_length,
    }
