"""What is particular to an answer that comes over a socket."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable

import pytest
from scripted import model_of

from mlxnb.host.remote.reply import RemoteReply
from mlxnb.host.remote.wire import Told
from mlxnb.sessions.local import LocalEngine

Say = Callable[..., str]


def test_an_interrupt_before_it_has_begun_stops_it(
    engine: LocalEngine, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:  # C26
    name = say("one two three four five " * 20)
    session = engine.session()
    model = model_of(engine, name)
    model.on_call = lambda: time.sleep(0.02)  # it does not end by itself
    take = RemoteReply._take

    def late(reply: RemoteReply, told: Told) -> None:
        if told[0] == "begun":
            _thread.interrupt_main()
            time.sleep(0.2)  # the interrupt is there first
        take(reply, told)

    monkeypatch.setattr(RemoteReply, "_take", late)
    with pytest.raises(KeyboardInterrupt):
        session.send("hi")
    assert session.last is not None
    assert session.last.finish_reason == "cancelled"
    assert not session.answering
    monkeypatch.undo()
    model.on_call = lambda: None
    assert session.send("hi").text.startswith("one two three")
