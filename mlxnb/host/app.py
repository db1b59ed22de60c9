"""All routes of a host (W1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tornado.httputil import HTTPMessageDelegate
from tornado.routing import URLSpec
from tornado.web import Application

from mlxnb.host.capped import CappedBody
from mlxnb.host.context import Context
from mlxnb.host.control import conversations, look, manage, turns
from mlxnb.host.counts import COUNTS, Count
from mlxnb.host.door import Door
from mlxnb.host.generate import Generate
from mlxnb.host.health import Base, Health, Metrics, Nothing
from mlxnb.host.listing import ModelFacts, ModelList
from mlxnb.host.route import Route
from mlxnb.host.stored import Cancel, InputItems, Stored

BASE = "/mlxnb"
"""Where the routes are, on the notebook port and on a host's own sockets."""
ID = "([^/]+)"
PLAIN: dict[str, type[Route]] = {
    "/?": Base,
    "/v1/?": Base,
    "/health": Health,
    "/metrics": Metrics,
    "/v1/models": ModelList,
    "/v1/models/(.+)": ModelFacts,
    f"/v1/responses/{ID}": Stored,
    f"/v1/responses/{ID}/cancel": Cancel,
    f"/v1/responses/{ID}/input_items": InputItems,
}
CONTROL: dict[str, type[Route]] = {
    "/api/status": look.Status,
    "/api/turns": look.Turns,
    f"/api/turns/{ID}/cancel": turns.CancelTurn,
    "/api/prefix": look.Prefix,
    "/api/models": look.Models,
    "/api/memory": look.Memory,
    f"/api/explain/{ID}": look.Explain,
    f"/api/tokens/{ID}": look.Tokens,
    f"/api/timeline/{ID}": look.Timeline,
    "/api/load": manage.Load,
    "/api/unload": manage.Unload,
    "/api/pin": manage.Pin,
    "/api/evict": manage.Evict,
    "/api/budget": manage.Budget,
    "/api/warm": turns.Warm,
    "/api/sessions": conversations.Sessions,
    f"/api/sessions/{ID}": conversations.One,
    f"/api/sessions/{ID}/fork": conversations.Fork,
    f"/api/sessions/{ID}/rewind": conversations.Rewind,
    f"/api/sessions/{ID}/reset": conversations.Reset,
    f"/api/sessions/{ID}/export": conversations.Export,
    f"/api/sessions/{ID}/keep": conversations.Keep,
    f"/api/sessions/{ID}/tools": conversations.Tools,
    "/api/import": conversations.Import,
    "/api/restore": conversations.Restore,
    f"/api/sessions/{ID}/turns": turns.Send,
    f"/api/sessions/{ID}/tool_results": turns.ToolResult,
}


class HostApplication(Application):
    """Keeps little of a body that is too large."""

    def start_request(self, server_conn: object, request_conn: Any) -> HTTPMessageDelegate:
        """See `HTTPServerConnectionDelegate`."""
        handler = super().start_request(server_conn, request_conn)
        return CappedBody(handler, self.settings["body_bytes"] + 1)


def application(context: Context, doors: Sequence[Door]) -> Application:
    """The routes over one service, for one listening socket."""
    return HostApplication(
        list(_routes(context, doors)),
        default_handler_class=Nothing,
        default_handler_args={"context": context},
        log_function=_no_access_log,
        prove=context.gate.proof,
        body_bytes=context.limits.body_bytes,
    )


def _routes(context: Context, doors: Sequence[Door]) -> Iterator[URLSpec]:
    for door in doors:
        yield _route(door.path, Generate, context, door=door)
    for path, options in COUNTS.items():
        yield _route(path, Count, context, **options)
    for pattern, handler in (PLAIN | CONTROL).items():
        yield _route(pattern, handler, context)


def _route(pattern: str, handler: type[Route], context: Context, **more: Any) -> URLSpec:
    return URLSpec(BASE + pattern, handler, {"context": context, **more})


def _no_access_log(handler: object) -> None:
    """Requests are in the turns frame; their lines would show URLs (W62)."""
