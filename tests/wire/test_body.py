"""W5: a body is a JSON object, and one that all behind it can rely on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.wire.body import MAX_DEPTH, check, read
from mlxnb.wire.errors import WireError


@pytest.mark.parametrize(
    "raw", [b'{"a": [1, 2.5, null, true, "\xc3\xa9"]}', b'\xef\xbb\xbf{"a": 1}']
)
def test_an_object_is_read(raw: bytes) -> None:
    assert read(raw) == json.loads(raw.decode("utf-8-sig"))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"a"',
        b"null",
        b"5",
        b"true",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_anything_else_is_400(raw: bytes) -> None:
    with pytest.raises(WireError) as caught:
        read(raw)
    assert caught.value.status == 400


@given(st.binary())
def test_no_bytes_raise_anything_but_a_400(raw: bytes) -> None:
    try:
        read(raw)
    except WireError as error:
        assert error.status == 400


@pytest.mark.parametrize("levels", [MAX_DEPTH - 2, MAX_DEPTH + 1])
def test_depth_is_bounded(levels: int) -> None:
    inner: object = 1
    for _ in range(levels):
        inner = [inner]
    if levels < MAX_DEPTH:
        assert check({"a": inner}) == {"a": inner}
    else:
        with pytest.raises(WireError, match="levels"):
            check({"a": inner})


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1}}, {"a": (1,)}, {"a": b""}])
def test_what_json_cannot_say_is_400(value: object) -> None:
    with pytest.raises(WireError):
        check(value)
