"""The tokens of a turn, what it did when, and blocks that go because somebody wants it."""

from __future__ import annotations

import pytest

from mlxnb.errors import InvalidOption, UnknownBlock, UnknownTurn
from mlxnb.records.frames import BLOCKS
from mlxnb.sessions.local import LocalEngine

SYSTEM = "You answer in one word, and you never say the same thing twice in a day. " * 3


def counts(engine: LocalEngine, turn: object = None) -> dict[str, int]:
    found: dict[str, int] = engine.tokens(turn).origin.value_counts().to_dict()  # type: ignore[arg-type]
    return found


# --- tokens -----------------------------------------------------------------------------------


def test_a_first_turn_is_computed(engine: LocalEngine, tiny: str) -> None:
    turn = engine.session(tiny, SYSTEM).send("hello", max_tokens=5)
    frame = engine.tokens()
    assert counts(engine) == {"computed": turn.prompt_tokens, "generated": turn.output_tokens}
    assert frame.position.tolist() == list(range(turn.prompt_tokens + turn.output_tokens))
    output = frame[frame.role == "output"]
    assert output.token_id.tolist() == turn.tokens and output.message.isna().all()
    said = frame[frame.role == "user"]
    assert "hello" in "".join(said.text) and not frame.diverged.any()


def test_a_next_turn_goes_on_with_a_hot_cache(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, SYSTEM)
    session.send("hello", max_tokens=5)
    turn = session.send("and then?", max_tokens=3)
    assert counts(engine, turn) == {
        "hot": turn.cached_tokens,
        "computed": turn.prefill_tokens,
        "generated": turn.output_tokens,
    }
    frame = engine.tokens(turn)
    assert frame.origin.tolist()[: turn.cached_tokens] == ["hot"] * turn.cached_tokens


def test_another_conversation_parts_where_it_differs(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, SYSTEM).send("hello there, you", max_tokens=3)
    engine.session(tiny, SYSTEM).send("hello there, she", max_tokens=3)
    turn = engine.session(tiny, SYSTEM).send("hello there, all of them", max_tokens=3)
    frame = engine.tokens(turn.id)
    (at,) = frame[frame.diverged].position
    assert at == engine.turns().set_index("turn_id").diverged_at[turn.id] >= turn.cached_tokens > 50
    told = counts(engine, turn)
    assert told["computed"] == turn.prefill_tokens
    assert told.get("memory", 0) + told.get("hot", 0) == turn.cached_tokens


def test_without_texts_there_are_places_and_origins_alone(engine: LocalEngine, tiny: str) -> None:
    engine.session(tiny, SYSTEM).send("a secret", max_tokens=3)
    frame = engine.tokens(show_text=False)
    assert frame.token_id.isna().all() and set(frame.text) == {""}
    assert {"system", "user", "output"} <= set(frame.role)


def test_a_turn_that_is_not_there(engine: LocalEngine, tiny: str) -> None:
    for look in (engine.tokens, engine.timeline):
        with pytest.raises(UnknownTurn):
            look("t99")
        with pytest.raises(UnknownTurn):
            look()


def test_a_session_that_is_forgotten_leaves_rows_and_no_texts(
    engine: LocalEngine, tiny: str
) -> None:
    secret = engine.session(tiny, SYSTEM, name="own").send("a secret, PLAN", max_tokens=3)
    other = engine.session(tiny, SYSTEM).send("a secret, another", max_tokens=3)
    assert "PLAN" in repr(engine.explain(other))
    engine.remove_session("own", forget=True)
    with pytest.raises(UnknownTurn, match="not kept"):
        engine.tokens(secret)
    assert "PLAN" not in repr(engine.explain(other))
    assert secret.id in set(engine.turns().turn_id)


# --- when -------------------------------------------------------------------------------------


def test_the_timeline_has_all_of_a_turn(engine: LocalEngine, tiny: str) -> None:
    session = engine.session(tiny, SYSTEM)
    for text in ("hello", "and then?"):
        turn = session.send(text, max_tokens=6)
        frame = engine.timeline(turn)
        assert list(frame.columns) == ["phase", "start_s", "end_s", "tokens"]
        sums = frame.groupby("phase").tokens.sum()
        assert sums["prefill"] == turn.prefill_tokens
        assert sums["decode"] == turn.output_tokens == (frame.phase == "decode").sum()
        assert (frame.end_s >= frame.start_s).all()
        assert frame.start_s.is_monotonic_increasing
        assert frame.end_s.max() == pytest.approx(turn.timing.total_s, abs=1e-6)
        first = frame[frame.phase == "decode"].end_s.iloc[0]
        assert first == pytest.approx(turn.timing.ttft_s, abs=1e-6)
        queue = frame.set_index("phase").loc["queue"]
        assert queue.end_s - queue.start_s == pytest.approx(turn.timing.queue_s)


# --- blocks -----------------------------------------------------------------------------------


def test_more_is_known_of_blocks_than_the_frame_shows_at_first(
    engine: LocalEngine, tiny: str
) -> None:
    one, two = (engine.session(tiny, SYSTEM, name=name) for name in ("one", "two"))
    one.send("hello", max_tokens=3)
    two.send("what else", max_tokens=3)
    assert list(engine.prefix_cache().columns) == list(BLOCKS)
    frame = engine.prefix_cache(wide=True)
    assert list(frame.columns) == [*BLOCKS, "evict_order", "owner"]
    owners = frame[frame.kind == "hot"].owner
    assert set(owners) == {"one", "two"}
    order = frame.evict_order.dropna()
    assert sorted(order) == list(range(1, len(order) + 1))
    place = frame.set_index("block_id").evict_order
    for block, parent in zip(frame.block_id, frame.parent_id, strict=True):
        if parent in place.index and parent in order.index:
            assert place[block] < place[parent]


def test_what_is_to_go_goes_with_all_behind_it(engine: LocalEngine, tiny: str) -> None:
    sessions = [engine.session(tiny, SYSTEM, name=name) for name in ("one", "two", "three")]
    turns = [session.send(f"hello {session.name}", max_tokens=3) for session in sessions]
    for session in sessions:
        engine.remove_session(session.name)
    for block in engine.prefix_cache().query("kind == 'hot'").block_id:
        engine.evict(block)
    frame = engine.prefix_cache()
    assert set(frame.kind) == {"kv"}
    chain = frame.sort_values("start")
    first, second = chain.block_id.iloc[:2]
    engine.evict(second)
    left = engine.prefix_cache()
    assert left.block_id.tolist() == [first]
    again = engine.session(tiny, SYSTEM).send("hello one", max_tokens=3)
    assert again.cached_tokens == left.tokens.sum() < turns[1].cached_tokens
    assert again.tokens == turns[0].tokens


def test_what_is_pinned_stays(engine: LocalEngine, tiny: str) -> None:
    for text in ("hello", "what else"):
        engine.session(tiny, SYSTEM).send(text, max_tokens=3)
    before = engine.prefix_cache()
    block = before[before.kind == "kv"].sort_values("start").block_id.iloc[-1]
    root = before[before.kind == "kv"].sort_values("start").block_id.iloc[0]
    engine.pin(block)
    for name in (block, root):
        with pytest.raises(InvalidOption, match="pinned"):
            engine.evict(name)
    frame = engine.prefix_cache(wide=True).set_index("block_id")
    assert frame.evict_order.isna()[block]
    assert set(frame.index) == set(before.block_id)
    with pytest.raises(UnknownBlock):
        engine.evict("nothing of that name")
