from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxnb.wire import ids


def test_a_response_names_its_host() -> None:
    assert ids.host_of(ids.response_id("abcdefgh")) == "abcdefgh"


def test_no_two_responses_have_one_id() -> None:
    assert len({ids.response_id("abcdefgh") for _ in range(100)}) == 100


def test_an_item_names_its_response_and_host() -> None:
    response = ids.response_id("abcdefgh")
    item = ids.item_id("fc", response, 3)
    assert ids.response_of(item) == response
    assert ids.host_of(item) == "abcdefgh"


def test_a_message_is_a_response_under_another_name() -> None:
    response = ids.response_id("abcdefgh")
    message = ids.renamed(response, "msg")
    assert message.startswith("msg_abcdefgh_")
    assert ids.renamed(message, "resp") == response


@pytest.mark.parametrize("foreign", ["", "resp_68af", "msg_01ABCdef", "resp_abcdefgh", "x y"])
def test_a_foreign_id_names_no_host(foreign: str) -> None:
    assert ids.host_of(foreign) is None
    assert ids.response_of(foreign) is None


def test_a_response_is_no_item() -> None:
    assert ids.response_of(ids.response_id("abcdefgh")) is None


def test_our_calls_are_toolu_to_anthropic_s_clients() -> None:
    assert ids.toolu("call_0a") == "toolu_0a"


@given(st.one_of(st.text(), st.text().map("call_{}".format), st.text().map("toolu_{}".format)))
def test_ids_of_calls_map_one_to_one(call_id: str) -> None:
    assert ids.toolu(ids.toolu(call_id)) == call_id
