"""W67: keys, tokens and prompts are in no log and in no saved notebook."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from jupyter.server import BASE_URL

from mlxnb.link.record import records

from .place import Place, headless_place, kernel_place

WORD = "xylophonic"
"""What only prompts say. No model here repeats it."""
HI: Any = [{"role": "user", "content": f"A {WORD} question"}]
MAGICS = """\
%mlx_chat --model talker What is this?
%mlx_turns
%mlx_turns --wide
%mlx_prefix
%mlx_sessions
%mlx_session
%mlx_models
%mlx_explain
%mlx_serve
%mlx_serve --status
%mlx_serve -o served
served
vars(served)
%mlx_load no-such-model
%mlx_unload nothing
mlxnb.engine()
mlxnb.engine().turns(wide=True).to_dict()
mlxnb.engine().prefix_cache().to_dict()
mlxnb.engine().sessions().to_dict()
mlxnb.engine().explain()
mlxnb.engine().served
vars(mlxnb.engine())
1 / 0"""


def talk(place: Place) -> None:
    """Good requests and bad ones, whose key or whose prompt something might write down."""
    client, other = place.openai(), place.anthropic()
    tail: Any = {"input": f"A {WORD} question"}
    client.responses.create(model="talker", **tail)
    with client.responses.stream(model="thinker", **tail) as stream:
        list(stream)
    other.messages.create(model="caller", messages=HI, max_tokens=50, system=WORD)
    client.chat.completions.create(model="talker", messages=HI)
    for wrong in (
        {"model": WORD},
        {"input": WORD * 5000},
        {"temperature": WORD},
        {"tools": [WORD]},
    ):
        with pytest.raises(openai.APIStatusError):
            client.responses.create(**{"model": "talker", **tail, **wrong})
    with pytest.raises(anthropic.APIStatusError):
        other.messages.create(model="talker", messages=HI, max_tokens=50, system={WORD: WORD})
    place.server.ask("POST", f"/v1/responses?q={place.server.key}", content=WORD.encode() * 9)
    place.server.ask("GET", f"/v1/{place.server.key}/nothing")
    place.server.ask("GET", "/health?token=" + place.server.token)
    with place.gate("long") as gate:
        stream = client.responses.create(model="long", **tail, stream=True)
        gate.wait()
        stream.close()
    with place.gate("going") as gate, ThreadPoolExecutor(2) as pool:
        failing = pool.submit(client.responses.create, model="going", **tail)
        gate.wait()
        unloading = pool.submit(place.control, "POST", "/unload", json={"name": "going"})
        gate.open()
        with suppress(openai.APIStatusError):  # unless its last token came before the unload
            failing.result(100)
        unloading.result(100)


def secrets_of(place: Place) -> list[str]:
    hosts = [record.secret for record in records()]
    return [place.server.key, place.server.token, *hosts]


def holders(folder: Path, text: str) -> Iterator[str]:
    """The files that have it, in whatever encoding of one byte a letter."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and text.encode() in path.read_bytes():
            yield str(path.relative_to(folder))


def test_no_key_and_no_prompt_is_written_down(fresh_state: Path, models: Path) -> None:
    debug: Any = {"ServerApp": {"log_level": "DEBUG"}}
    with headless_place(fresh_state, models, **debug) as place:
        talk(place)
        secret = secrets_of(place)
        assert "mlxnb" in place.server.log
        log = place.server.log
    for one in (WORD, *secret):
        assert one not in log
    # the store is for prompts; it is private, and its rows go when they expire
    assert {name.partition("-")[0] for name in holders(fresh_state / "state", WORD)} <= {
        "responses.sqlite3"
    }
    assert list(holders(fresh_state, place.server.key)) == []


def test_no_notebook_saves_a_key_or_a_clients_prompt(fresh_state: Path, models: Path) -> None:
    with kernel_place(fresh_state, models) as place:
        talk(place)
        kernel = place.kernel
        assert kernel is not None
        for cell in MAGICS.splitlines():
            kernel.run(cell, fails=True)
        saved = kernel.saved()
        own = kernel.run("print(mlxnb.engine().served.server.token)").strip()
        for one in (WORD, own, *secrets_of(place)):
            assert one not in saved
        assert f"{BASE_URL}mlxnb/v1" in saved  # it was searched for something that is there
        log = place.server.log
        for one in (WORD, *secrets_of(place)):
            assert one not in log
