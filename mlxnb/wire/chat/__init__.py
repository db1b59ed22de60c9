"""Chat completions: a body to an `Ask`, and an answer's events to chunks or a completion."""

from mlxnb.wire.chat.ask import ask
from mlxnb.wire.chat.machine import Machine, encode
from mlxnb.wire.chat.request import ChatRequest, parse

__all__ = ["ChatRequest", "Machine", "ask", "encode", "parse"]
