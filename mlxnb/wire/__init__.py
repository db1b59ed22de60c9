"""HTTP protocols as pure functions and state machines over an engine's events.

No tornado, no mlx, no threads: a request's body comes in as parsed JSON, and events and bodies go
out as JSON values.
"""

from __future__ import annotations

from typing import Any

Event = tuple[str, dict[str, Any]]
"""A server-sent event: its name and its payload."""
