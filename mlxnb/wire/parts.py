"""Parts of messages that OpenAI's two protocols have in common."""

from __future__ import annotations

from typing import Literal

from mlxnb.wire.validation import Wire


class RefusalPart(Wire):
    """What an earlier answer said instead."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """What the model reads."""
        return self.refusal
