"""OpenAI's Responses API: ``POST v1/responses`` and what belongs to it."""

from mlxnb.wire.responses.machine import Machine
from mlxnb.wire.responses.mapping import ask, references, settled
from mlxnb.wire.responses.request import ResponsesRequest, compared, parse, parse_count, previous_id
from mlxnb.wire.responses.stored import counted, deleted, page

__all__ = [
    "Machine",
    "ResponsesRequest",
    "ask",
    "compared",
    "counted",
    "deleted",
    "page",
    "parse",
    "parse_count",
    "previous_id",
    "references",
    "settled",
]
