"""What each of our exceptions is on the wire (W3)."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from mlxnb import errors as ours
from mlxnb.wire import errors
from mlxnb.wire.errors import WireError, anthropic_body, of, openai_body

MADE = {
    ours.NotEnoughMemory: ("no room", 2, 1),
    ours.ContextOverflow: (9, 8),
    ours.Unfinished: ("it cannot go on", None),
    ours.HostGone: ("abcdefgh", "closed"),
    ours.HostRefused: (404, {"error": {"message": "gone", "code": "x", "param": "y"}}),
}
KINDS = [
    kind
    for _, kind in inspect.getmembers(ours, inspect.isclass)
    if issubclass(kind, ours.MlxnbError)
]


def make(kind: type[ours.MlxnbError]) -> ours.MlxnbError:
    return kind(*next((MADE[k] for k in kind.__mro__ if k in MADE), ("what was wrong",)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_of_ours_was_thought_of(kind: type[ours.MlxnbError]) -> None:
    shaped = [k for k in kind.__mro__ if k in errors._SHAPES]
    assert shaped[0] is not ours.MlxnbError or kind in (ours.MlxnbError, ours.HostRefused)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_of_ours_keeps_its_message(kind: type[ours.MlxnbError]) -> None:
    error = make(kind)
    told = of(error)
    assert told.message == str(error)
    assert told.status in errors.TYPES


@pytest.mark.parametrize(
    ("kind", "status", "type_", "code"),
    [
        (ours.InvalidOption, 400, "invalid_request_error", "invalid_value"),
        (ours.ModelNotFound, 404, "not_found_error", "model_not_found"),
        (ours.ContextOverflow, 400, "invalid_request_error", "context_length_exceeded"),
        (ours.QueueFull, 429, "rate_limit_error", "queue_full"),
        (ours.ModelUnloaded, 409, "conflict", "model_changed"),
        (ours.ModelChanged, 400, "invalid_request_error", "model_changed"),
        (ours.StorageTimeout, 503, "server_error", "storage_timeout"),
        (ours.EngineDied, 503, "server_error", "engine_died"),
        (ours.UnknownResponse, 404, "not_found_error", "response_not_found"),
    ],
)
def test_openai_type_and_code(
    kind: type[ours.MlxnbError], status: int, type_: str, code: str
) -> None:
    told = of(make(kind))
    assert (told.status, told.type, told.code) == (status, type_, code)


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropic_type(status: int, type_: str) -> None:
    body = anthropic_body(WireError(status, "no"), "req_1")
    assert body == {
        "type": "error",
        "error": {"type": type_, "message": "no"},
        "request_id": "req_1",
    }


def test_openai_shape_has_all_four_keys() -> None:
    assert openai_body(WireError(400, "no", param="input")) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "input", "code": None}
    }


def test_details_are_in_anthropic_s_shape_alone() -> None:
    error = WireError(400, "no", details={"error_code": "thread_unsupported_request"})
    assert anthropic_body(error, None)["error"]["details"] == error.details
    assert "details" not in openai_body(error)["error"]


def test_a_full_queue_says_when_to_come_again() -> None:
    assert of(ours.QueueFull("full")).headers == {"Retry-After": "1"}


def test_the_field_at_fault_is_named() -> None:
    assert of(ours.InvalidOption("no", param="top_p")).param == "top_p"


def test_a_failed_request_is_its_cause() -> None:
    failed = ours.RequestFailed("outer")
    failed.__cause__ = ours.ModelUnloaded("inner")
    assert of(failed).status == 409


def test_a_fault_of_ours_is_named_without_its_text() -> None:
    told = of(RuntimeError("secret prompt"))
    assert told.status == 500
    assert "secret" not in told.message
    assert "RuntimeError" in told.message


def test_a_wire_error_is_itself() -> None:
    error = WireError(418, "no")
    assert of(error) is error


def test_a_host_s_own_error_is_passed_on() -> None:
    told = of(make(ours.HostRefused))
    assert (told.status, told.message, told.code, told.param) == (404, "gone", "x", "y")


def test_errors_need_neither_mlx_nor_pandas() -> None:
    code = (
        "import sys, mlxnb.wire.errors\n"
        "print([m for m in ('mlx', 'mlx_lm', 'pandas', 'tornado') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
