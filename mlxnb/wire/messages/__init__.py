"""Anthropic Messages: a body to an `Ask`, and an answer's events to a stream or a message."""

from mlxnb.wire.messages.ask import ask
from mlxnb.wire.messages.machine import Machine
from mlxnb.wire.messages.request import CountRequest, MessagesRequest, parse, parse_count

__all__ = ["CountRequest", "Machine", "MessagesRequest", "ask", "parse", "parse_count"]
