from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.wire.sse import encode


def test_an_event_has_both_lines() -> None:
    assert encode("ping", {"type": "ping"}) == b'event: ping\ndata: {"type":"ping"}\n\n'


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_one_line_to_every_way_of_cutting(text: str) -> None:
    lines = encode("x", {"text": text}).decode().splitlines()
    assert lines[0] == "event: x"
    assert json.loads(lines[1].removeprefix("data: ")) == {"text": text}
    assert lines[2:] == [""]


def test_text_goes_out_as_utf_8() -> None:
    assert "é".encode() in encode("x", {"text": "é"})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_json_is_not_sent(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode("x", {"rate": number})
