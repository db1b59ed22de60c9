"""Engines over one disk: what one has computed another begins with, and warm is cold."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from mlxnb.cache import shelf
from mlxnb.cache.disk import shard
from mlxnb.cache.disk.entry import Entry
from mlxnb.cache.disk.tier import INDEX, DiskTier
from mlxnb.engine.events import Prefill
from mlxnb.errors import ModelUnloaded, RequestFailed
from mlxnb.host.remote.engine import RemoteEngine
from mlxnb.host.server import Server
from mlxnb.link.record import HostRecord
from mlxnb.models.resolve import resolve
from mlxnb.records.tokens import common_prefix, pack
from mlxnb.records.turn import Turn
from mlxnb.sessions.local import LocalEngine
from mlxnb.sessions.serving.catalog import Catalog
from mlxnb.sessions.serving.service import Service
from mlxnb.sessions.serving.store import Store

from .lives import KINDS, PATIENCE_S, Life, Open, save, sweep
from .settled import assert_settled, held
from .spy import assert_parity

SYSTEM = "You say what you see, in as few words as you can, and you never repeat yourself."
TEXTS = ("hello there, what have you seen today?", "and on", "so what is it that you see?")
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a kind's tiny model."""
    made: dict[str, Path] = {}
    parent = tmp_path_factory.mktemp("models")

    def model(kind: str) -> Path:
        if kind not in made:
            made[kind] = save(kind, parent / kind.replace(" ", "-"))
        return made[kind]

    return model


@pytest.fixture
def kv(tmp_path: Path) -> Path:
    return tmp_path / "kv"


@pytest.fixture
def open_life(
    kv: Path,
    tmp_path: Path,
    model_of: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Open]:
    """Open an engine over the folder; those before it may still be there."""
    monkeypatch.setenv("MLXNB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLXNB_PAGED", "1")
    made: list[Life] = []

    def open_one(kind: str = "llama", **options: Any) -> Life:
        made.append(Life(kv, options.pop("model", None) or model_of(kind), kind, **options))
        return made[-1]

    yield open_one
    for life in made:
        if not life.engine.closed:
            assert_settled(life.engine)
        life.close()


def said(life: Life, count: int = 3, **options: Any) -> list[Turn]:
    """Turns of a conversation."""
    session = life.session(system=SYSTEM, **options)
    return [session.send(text, max_tokens=8) for text in TEXTS[:count]]


def disk_tokens(life: Life, turn: Turn) -> int:
    return life.engine.ledger[turn.id].disk_tokens


def parity(life: Life, *turns: Turn) -> None:
    records = [life.engine.ledger[turn.id] for turn in turns]
    assert_parity(life.engine, life.spy, records, greedy=False)


# --- what comes back --------------------------------------------------------------------------


@every_kind
def test_a_conversation_goes_on_in_another_engine(open_life: Open, kind: str) -> None:
    """By the independent witness: nothing is fed that was on disk."""
    one = open_life(kind)
    session = one.session(system=SYSTEM)
    turns = [session.send(text, max_tokens=8) for text in TEXTS]
    before = turns[-1].prompt_tokens + turns[-1].output_tokens - 1
    one.written()
    history = session._history
    one.close()
    two = open_life(kind)
    turn = two.session(history, system=SYSTEM).send("and then", max_tokens=8)
    assert turn.cached_tokens == before == disk_tokens(two, turn)
    assert two.spy.total == turn.prefill_tokens + 7
    parity(two, turn)
    row = two.engine.turns(wide=True).set_index("turn_id").loc[turn.id]
    assert (row.disk_tokens, row.joined_tokens) == (before, 0)


def ends(life: Life) -> None:
    life.close()


def unloads(life: Life) -> None:
    """By then all is packed; the disk's own thread goes on writing it."""
    life.engine.unload(life.name)
    assert life.shelf.packer.idle
    assert life.disk.flush(PATIENCE_S)


@pytest.mark.parametrize("goes", [ends, unloads])
@every_kind
def test_what_has_just_ended_is_kept(
    open_life: Open, kind: str, goes: Callable[[Life], None]
) -> None:
    """Nobody waits for the disk before the engine is closed, or the model unloaded."""
    one = open_life(kind)
    text = "What I have seen is long to tell: " * 40
    first = one.session(system=SYSTEM).send(text, max_tokens=8)
    goes(one)
    two = open_life(kind)
    turn = two.session(system=SYSTEM).send(text, max_tokens=8)
    assert turn.cached_tokens >= first.prompt_tokens - 17 > 1000
    parity(two, turn)


@every_kind
def test_the_sessions_frame_counts_what_is_on_disk(open_life: Open, kind: str) -> None:
    life = open_life(kind)
    session = life.session(system=SYSTEM)
    for text in TEXTS[:2]:
        session.send(text, max_tokens=8)
    life.engine.unload(life.name)
    life.engine.load(life.name, progress=False, kv_bits=KINDS[kind].get("kv_bits"))
    (row,) = life.engine.sessions().itertuples()
    assert 0 < row.cached_tokens == session.send("and then", max_tokens=2).cached_tokens


@every_kind
def test_another_conversation_begins_with_what_they_share(open_life: Open, kind: str) -> None:
    """C10: of a model that cannot be rewound all of the head, of others its whole blocks."""
    one = open_life(kind)
    (first,) = said(one, 1)
    one.written()
    two = open_life(kind)
    turn = two.session(system=SYSTEM).send("something else altogether", max_tokens=4)
    spans = one.engine.ledger[first.id].spans
    head = next(span.start for span in spans if span.role == "user")
    wanted = head if "rewindable" in KINDS[kind] else head // 16 * 16
    assert turn.cached_tokens == disk_tokens(two, turn) == wanted > 16
    parity(two, turn)


@every_kind
def test_several_at_once_begin_with_it(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    (first,) = said(one, 1)
    one.written()
    two = open_life(kind)
    with held(two.engine):
        sessions = [two.session(system=SYSTEM) for _ in range(5)]
        replies = [s.reply(TEXTS[0], max_tokens=8) for s in sessions]
    turns = [reply.result() for reply in replies]
    assert [turn.tokens for turn in turns] == [first.tokens] * 5
    assert min(turn.cached_tokens for turn in turns) >= first.prompt_tokens - 16
    parity(two, *turns)


@every_kind
def test_the_frame_shows_what_is_on_disk_alone(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    said(one)
    one.written()
    two = open_life(kind)
    frame = two.engine.prefix_cache()
    assert set(frame.tier) == {"disk"}
    assert set(frame.kind) == ({"kv", "state"} if "rewindable" in KINDS[kind] else {"kv"})
    assert frame.bytes.sum() == sum(e.nbytes for e in two.disk.entries(two.namespace))
    assert not frame.pinned.any() and set(frame.preview) == {""}
    followed = set(frame.parent_id.dropna())
    assert followed and followed <= set(frame.block_id)
    said(two)
    frame = two.engine.prefix_cache()
    assert set(frame.tier) == {"memory", "disk"}
    assert not set(frame.block_id[frame.tier == "memory"]) & set(
        frame.block_id[frame.tier == "disk"]
    )


@every_kind
def test_who_reuses_nothing_reads_and_writes_nothing(open_life: Open, kind: str) -> None:
    one = open_life(kind)
    said(one, reuse=False)
    one.written()
    assert one.disk.count == 0
    turns = said(one)
    one.written()
    before = one.disk.count
    two = open_life(kind)
    cold = said(two, reuse=False)
    assert [turn.tokens for turn in cold] == [turn.tokens for turn in turns]
    assert [turn.cached_tokens for turn in cold] == [0] * 3
    two.written()
    assert two.disk.count == before


@every_kind
def test_two_engines_at_once(open_life: Open, kind: str) -> None:
    """They say the same and other things at the same time; each finds what the other has said."""
    one, two = open_life(kind), open_life(kind)

    def talk(life: Life, number: int) -> list[Turn]:
        turns = []
        for again in range(4):
            session = life.session(system=SYSTEM)
            turns += [session.send(f"{text} {again}", max_tokens=5) for text in TEXTS[:2]]
            turns.append(session.send(f"{number} says {again}", max_tokens=5))
        return turns

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(talk, (one, two), (1, 2)))
    for life, turns in zip((one, two), both, strict=True):
        parity(life, *turns)
        life.written()
    assert [t.tokens for t in both[0]][0::3] == [t.tokens for t in both[1]][0::3]
    three = open_life(kind)
    talk(three, 3)
    assert three.engine.turns(wide=True).disk_tokens.sum() > 0


# --- faults -----------------------------------------------------------------------------------


def no_folder(kv: Path, patch: pytest.MonkeyPatch) -> None:
    sweep(kv)


def no_shards(kv: Path, patch: pytest.MonkeyPatch) -> None:
    for path in kv.glob("*.safetensors"):
        path.unlink(missing_ok=True)


def flipped(kv: Path, patch: pytest.MonkeyPatch) -> None:
    for path in kv.glob("*.safetensors"):
        with suppress(FileNotFoundError):  # merged meanwhile
            data = bytearray(path.read_bytes())
            data[len(data) // 2 :: 50] = bytes(len(data[len(data) // 2 :: 50]))
            path.write_bytes(data)


def garbage(kv: Path, patch: pytest.MonkeyPatch) -> None:
    (kv / INDEX).write_bytes(b"garbage " * 2000)


def full(kv: Path, patch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    patch.setattr(shard, "save_file", fails)


def read_only(kv: Path, patch: pytest.MonkeyPatch) -> None:
    """Injected, for those whom permissions do not stop."""

    def fails(*args: Any) -> None:
        raise PermissionError(13, "Permission denied")

    patch.setattr(shard, "save_file", fails)


@pytest.mark.parametrize("fault", [no_folder, no_shards, flipped, garbage, full, read_only])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "mamba2"])
def test_whatever_happens_to_the_disk_answers_are_as_cold_ones(
    open_life: Open, kv: Path, kind: str, fault: Callable[..., None], monkeypatch: Any
) -> None:
    """C21: no request fails, and after it all is as before."""
    one = open_life(kind)
    said(one)
    one.written()
    two = open_life(kind)
    turns = said(two, 1)
    with monkeypatch.context() as patch:
        fault(kv, patch)
        turns += said(two, 1, cache_salt="pepper") + said(two)
        three = open_life(kind)
        others = said(three)
    parity(two, *turns)
    parity(three, *others)
    for life in (two, three):
        turns = said(life, cache_salt="after it")
        turns += said(life, cache_salt="and then")
        parity(life, *turns)
        life.written()
    turns = said(open_life(kind), cache_salt="and then")
    assert turns[0].cached_tokens >= turns[0].prompt_tokens - 17


@pytest.mark.parametrize("kind", ["llama", "llama contiguous", "gemma3_text", "mamba2"])
def test_budgets_too_small_for_what_is_read(open_life: Open, kind: str) -> None:
    """C17: the answer is a cold one's, or the request is refused."""
    long = " ".join(TEXTS * 12)
    one = open_life(kind)
    wanted = one.session(system=SYSTEM).send(long, max_tokens=6)
    one.written()
    budget = max(one.engine.core.store.nbytes, 300_000)
    one.close()
    refused = 0
    for share in (0.3, 0.6, 0.9, 1.1, 1.5, 2.5, 4.0):
        life = open_life(kind, budget=int(share * budget))
        session = life.session(system=SYSTEM)
        reply = session.reply(long, max_tokens=6)
        turn = reply.outcome()
        if turn.finish_reason == "error":
            assert str(turn.error).startswith("BudgetExceeded")
            refused += 1
        else:
            assert turn.tokens == wanted.tokens
        assert life.engine.core.store.nbytes <= life.engine.budget
        life.close()
    assert refused < 7


# --- reads that take their time ---------------------------------------------------------------


class Gate:
    """Reads from disk wait until it is opened."""

    def __init__(self, disk: DiskTier, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self.begun = threading.Event(), threading.Event()
        get = disk.get

        def slow(namespace: str, ids: list[str]) -> list[Entry]:
            self.begun.set()
            assert self._open.wait(PATIENCE_S)
            return get(namespace, ids)

        monkeypatch.setattr(disk, "get", slow)

    def open(self) -> None:
        self._open.set()


@pytest.fixture(params=["llama", "llama contiguous", "qwen3_next"])
def slow(
    request: pytest.FixtureRequest, open_life: Open, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Life, Gate, Turn]]:
    """An engine whose reads wait, and what another one has said."""
    one = open_life(request.param)
    (first,) = said(one, 1)
    one.written()
    two = open_life(request.param)
    gate = Gate(two.disk, monkeypatch)
    yield two, gate, first
    gate.open()


def asked(life: Life) -> Any:
    """What `said` says first, on its way."""
    return life.session(system=SYSTEM).reply(TEXTS[0], max_tokens=8)


def test_others_are_served_while_one_waits_for_the_disk(slow: tuple[Life, Gate, Turn]) -> None:
    life, gate, first = slow
    reply = asked(life)
    assert gate.begun.wait(PATIENCE_S)
    other = life.session().send("short", max_tokens=4)
    assert life.engine.core.queues()[life.name] == (1, 0)
    gate.open()
    turn = reply.result()
    assert turn.tokens == first.tokens and disk_tokens(life, turn) > 0
    parity(life, other, turn)


def test_a_read_that_never_returns_is_not_waited_for_for_ever(
    slow: tuple[Life, Gate, Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    life, gate, first = slow
    monkeypatch.setattr(shelf, "LONGEST_S", 0.05)
    turns = [asked(life).result() for _ in range(2)]
    assert not gate._open.is_set()
    assert [turn.tokens for turn in turns] == [first.tokens] * 2
    assert [disk_tokens(life, turn) for turn in turns] == [0, 0]
    parity(life, *turns)


def test_a_request_that_waits_for_the_disk_can_be_cancelled(
    slow: tuple[Life, Gate, Turn],
) -> None:
    """C22."""
    life, gate, first = slow
    reply = asked(life)
    assert gate.begun.wait(PATIENCE_S)
    turn = reply.stop()
    assert (turn.finish_reason, turn.tokens) == ("cancelled", [])
    assert_settled(life.engine)
    gate.open()
    again = asked(life).result()
    assert again.tokens == first.tokens
    parity(life, turn, again)


def test_a_model_can_go_while_a_request_waits_for_the_disk(slow: tuple[Life, Gate, Turn]) -> None:
    life, gate, first = slow
    reply = asked(life)
    assert gate.begun.wait(PATIENCE_S)
    life.engine.unload(life.name)
    with pytest.raises(RequestFailed) as failed:
        reply.result()
    assert isinstance(failed.value.__cause__, ModelUnloaded)
    gate.open()
    life.engine.load(life.name, progress=False)
    turn = asked(life).result()
    assert turn.tokens == first.tokens and disk_tokens(life, turn) > 0


def test_an_engine_can_be_closed_while_a_request_waits_for_the_disk(
    slow: tuple[Life, Gate, Turn],
) -> None:
    life, gate, _ = slow
    reply = asked(life)
    assert gate.begun.wait(PATIENCE_S)
    life.close()
    assert reply.outcome().finish_reason == "error"


# --- forgetting -------------------------------------------------------------------------------


class Secret:
    """A conversation beside another one, and where its KV is."""

    def __init__(self, life: Life, kv: Path, engine: Any = None) -> None:
        self.life, self.kv = life, kv
        self.engine = engine or life.engine
        self.other = self.engine.session(life.name, system=SYSTEM, name="other")
        self.own = self.engine.session(life.name, system=SYSTEM, name="own")
        self.others = [self.other.send(text, max_tokens=6) for text in TEXTS[:2]]
        self.turns = [
            self.own.send(f"my secret is {n}: {text}", max_tokens=6) for n, text in enumerate(TEXTS)
        ]
        life.written()
        self.data = self.entries()
        self._lines: dict[str, list[int]] = {}
        for turn in (*self.others, *self.turns):
            self.line(turn)

    def line(self, turn: Turn) -> list[int]:
        """Its tokens, as they were when this was first asked."""
        if turn.id not in self._lines:
            record = self.life.engine.ledger[turn.id]
            self._lines[turn.id] = [*record.prompt, *record.output]
        return self._lines[turn.id]

    @property
    def shared(self) -> int:
        """Tokens that both begin with."""
        pairs = zip(self.line(self.turns[-1]), self.line(self.others[-1]), strict=False)
        return next(number for number, (a, b) in enumerate(pairs) if a != b)

    def entries(self) -> dict[str, bytes]:
        disk, name = self.life.disk, self.life.namespace
        found = [e for s in disk.entries(name) for e in disk.get(name, [s.id])]
        return {entry.id: bytes(entry.data) for entry in found}

    def assert_gone(self) -> None:
        """What was its alone is in no file and not in memory; the other goes on as before."""
        life, shared = self.life, self.shared
        life.written()
        held = b"".join(file.read_bytes() for file in self.kv.iterdir())
        left = {stored.id for stored in life.disk.entries(life.namespace)}
        line, other = self.line(self.turns[-1]), pack(self.line(self.others[-1]))
        own = [pack(line[n : n + 16]) for n in range(-(-shared // 16) * 16, len(line) - 16, 16)]
        own = [block for block in own if block not in other]  # tiny models repeat themselves
        assert len(own) > 2
        for block in own:
            assert block not in held
        gone = {name: data for name, data in self.data.items() if name not in left}
        assert len(gone) > 2
        for data in gone.values():
            assert not data or data not in held
        for live in life.engine.core.store.lives():
            assert live.shares(pack(line)) <= shared
        again = self.other.send("and then", max_tokens=4)
        assert again.cached_tokens >= self.others[-1].prompt_tokens
        life.written()


@every_kind
def test_a_session_is_forgotten_in_memory_and_on_disk(open_life: Open, kv: Path, kind: str) -> None:
    life = open_life(kind)
    secret = Secret(life, kv)
    life.engine.remove_session("own", forget=True)
    secret.assert_gone()
    two = open_life(kind)
    turn = two.session(system=SYSTEM).send("my secret is 0: no more", max_tokens=4)
    assert turn.cached_tokens <= secret.shared
    assert turn.cached_tokens >= secret.shared - 16
    parity(two, turn)


@every_kind
def test_all_that_a_session_has_tried_is_forgotten(open_life: Open, kv: Path, kind: str) -> None:
    """Samples, what was taken back, and what was cancelled; a fork goes on as before."""
    life = open_life(kind)
    secret = Secret(life, kv)
    own = secret.own
    fork = own.fork("fork")
    own.rewind()
    sampled = own.send("and in other words", n=3, max_tokens=8, temperature=1.0)
    own.reset()
    cancelled = own.reply("that is another secret of mine, " * 9, max_tokens=50)
    next(e for e in cancelled.events() if not isinstance(e, Prefill))
    stopped = cancelled.stop()
    kept, others = secret.line(secret.turns[-1]), secret.line(secret.others[-1])
    lines = [secret.line(turn) for turn in (*sampled.choices, stopped)]
    life.written()
    life.engine.remove_session("own", forget=True)
    life.written()
    held = b"".join(file.read_bytes() for file in kv.iterdir())
    known, checked = pack(kept) + pack(others), 0
    for line in lines:
        for start in range(0, len(line) - 16, 16):
            block = pack(line[start : start + 16])
            if block not in known:
                assert block not in held
                checked += 1
        for live in life.engine.core.store.lives():
            shared = live.shares(pack(line))
            assert shared <= max(common_prefix(pack(line), pack(known)) for known in (kept, others))
    assert checked > 8
    again = fork.send("and then", max_tokens=4)
    assert again.cached_tokens >= secret.turns[-1].prompt_tokens - 16


def test_a_session_whose_turns_have_left_the_ledger_is_forgotten(open_life: Open, kv: Path) -> None:
    life = open_life()
    records = life.engine.ledger
    records.limit = 1
    own = life.engine.session(life.name, name="own")
    turn = own.send("a secret that is long enough for a good many blocks", max_tokens=8)
    line = pack([*records[turn.id].prompt, *records[turn.id].output])
    life.session().send("another", max_tokens=1)
    life.session().send("another", max_tokens=1)
    assert turn.id not in {record.turn_id for record in records}
    life.written()
    assert any(line[64:128] in file.read_bytes() for file in kv.iterdir())
    life.engine.remove_session("own", forget=True)
    life.written()
    assert not any(line[64:128] in file.read_bytes() for file in kv.iterdir())


def test_a_session_that_is_removed_is_still_there(open_life: Open, kv: Path) -> None:
    life = open_life()
    secret = Secret(life, kv)
    life.engine.remove_session("own")
    life.written()
    assert secret.entries() == secret.data


class Host:
    """A life's engine behind HTTP."""

    def __init__(self, life: Life, folder: Path) -> None:
        source = resolve(life.name, progress=False)
        record = HostRecord.here("headless")
        self.service = Service(
            life.engine,
            catalog=Catalog([source], machine=False),
            store=Store(folder / "responses.sqlite3"),
            host=record.id,
        )
        self.server = Server(self.service, record, port=0)
        self.server.start()
        self.remote = RemoteEngine(self.server.record)
        url = f"{self.server.record.url}/mlxnb/v1"
        self.client = OpenAI(base_url=url, api_key=self.server.token, max_retries=0)

    def close(self) -> None:
        self.client.close()
        self.remote.close()
        self.server.stop(0.0)
        self.service.close()


@pytest.fixture
def behind_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Host]]:
    monkeypatch.setenv("MLXNB_STATE", str(tmp_path / "state"))
    hosts: list[Host] = []

    def make(life: Life) -> Host:
        hosts.append(Host(life, tmp_path))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "mamba2"])
def test_a_session_is_forgotten_over_http(
    open_life: Open, behind_http: Callable[..., Host], kv: Path, kind: str
) -> None:
    life = open_life(kind)
    host = behind_http(life)
    secret = Secret(life, kv, host.remote)
    host.remote.remove_session("own", forget=True)
    secret.assert_gone()


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "mamba2"])
def test_a_response_is_deleted_with_its_kv(
    open_life: Open, behind_http: Callable[..., Host], kv: Path, kind: str
) -> None:
    """And not that of the one before it, which can still be continued."""
    life = open_life(kind)
    host = behind_http(life)
    asked: dict[str, Any] = {"model": life.name, "max_output_tokens": 8}
    first = host.client.responses.create(**asked, instructions=SYSTEM, input=TEXTS[0])
    second = host.client.responses.create(
        **asked, input="my secret is here: hush", previous_response_id=first.id
    )
    life.written()
    turns = life.engine.turns()
    line = [list(life.engine.ledger[t].prompt) for t in turns.turn_id]
    kept = len(line[0]) + int(turns.output_tokens.iloc[0])
    host.client.responses.delete(second.id)
    life.written()
    held = b"".join(file.read_bytes() for file in kv.iterdir())
    for start in range(kept // 16 * 16 + 16, len(line[1]) - 16, 16):
        assert pack(line[1][start : start + 16]) not in held
    again = host.client.responses.create(**asked, input="go on", previous_response_id=first.id)
    usage = again.usage
    assert usage is not None
    assert usage.input_tokens_details.cached_tokens >= len(line[0]) - 1
    life.close()
    two = open_life(kind)
    turn = two.session(system=SYSTEM).send(TEXTS[0], max_tokens=4)
    assert turn.cached_tokens >= turn.prompt_tokens - 17


# --- the demo model ---------------------------------------------------------------------------

LONG = 4000
"""Tokens of a prefix."""


def test_a_long_prefix_of_the_demo_model(
    demo_path: Path, kv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first token after a restart; how long that takes is shown, and not judged."""
    seen: list[Turn] = []
    seconds: list[float] = []
    for _ in range(2):
        disk = DiskTier(kv, 2**30)
        engine = LocalEngine(disk=disk)
        try:
            name = engine.load("demo", progress=False).name
            words = f"{SYSTEM} " * (LONG // 18)
            session = engine.session(name, system=words, temperature=0.0)
            began = time.perf_counter()
            turn = session.send("Which room is the oldest?", max_tokens=1)
            seconds.append(time.perf_counter() - began)
            seen.append(turn)
            store = engine.core.store
            assert store.shelf is not None
            while not store.shelf.packer.idle:
                time.sleep(0.01)
            assert disk.flush(PATIENCE_S)
            if turn.cached_tokens:
                assert engine.ledger[turn.id].disk_tokens == turn.cached_tokens
        finally:
            engine.close()
    cold, warm = seen
    with capsys.disabled():
        ratio = seconds[0] / seconds[1]
        print(
            f"\n{LONG} tokens: {seconds[0]:.2f} s cold, {seconds[1]:.2f} from disk, {ratio:.1f}:1"
        )
    assert cold.cached_tokens == 0 and cold.prompt_tokens >= LONG
    assert warm.cached_tokens >= cold.prompt_tokens - 17
    assert warm.tokens == cold.tokens
