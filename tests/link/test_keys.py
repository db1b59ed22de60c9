"""W4, W66: keys as they are kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mlxnb.errors import InvalidOption, KeyExists, KeysBroken, MlxnbError, UnknownKey
from mlxnb.link import keys
from mlxnb.link.places import keys_file, saved_key_file


def test_w4_a_key_is_256_random_bits_after_its_prefix() -> None:
    first, second = keys.new("a"), keys.new("b")
    assert first.startswith("mlxnb_") and len(first) == len("mlxnb_") + 43
    assert first != second


def test_w4_a_key_is_known_again_from_its_hash() -> None:
    text = keys.new("laptop")
    found = keys.check(text)
    assert found is not None and found.name == "laptop"
    assert text not in keys_file().read_text()
    assert keys_file().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", [str.lower, str.upper, lambda t: t[:-1], lambda t: t + "x"])
def test_another_text_is_no_key(change: object) -> None:
    text = keys.new("laptop")
    assert keys.check(change(text)) is None  # type: ignore[operator]


@pytest.mark.parametrize("text", ["", "mlxnb_", "é\ud800", "x" * 100_000])
def test_any_text_can_be_checked(text: str) -> None:
    assert keys.check(text) is None
    keys.new("laptop")
    assert keys.check(text) is None


def test_w4_a_revoked_key_is_refused_and_its_file_gone() -> None:
    text, other = keys.new("a", save=True), keys.new("b")
    keys.revoke("a")
    assert keys.check(text) is None and keys.check(other) is not None
    assert [key.name for key in keys.all_keys()] == ["b"]
    assert not saved_key_file("a").exists()


def test_a_saved_key_can_be_shown_again() -> None:
    text = keys.new("a", save=True)
    assert keys.saved("a") == text
    assert saved_key_file("a").stat().st_mode & 0o777 == 0o600


def test_a_key_that_was_not_saved_cannot_be_shown() -> None:
    keys.new("a")
    with pytest.raises(UnknownKey, match="hash"):
        keys.saved("a")


def test_an_unknown_name_lists_what_is_there() -> None:
    keys.new("laptop")
    for act in (keys.revoke, keys.saved):
        with pytest.raises(UnknownKey, match="laptop"):
            act("phone")


def test_a_name_is_taken_once() -> None:
    text = keys.new("a")
    with pytest.raises(KeyExists, match="'a'"):
        keys.new("a")
    assert keys.check(text) is not None


@pytest.mark.parametrize("name", ["", ".", "../a", "a/b", "a b", "a" * 65, "-a"])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(InvalidOption, match="name"):
        keys.new(name)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": [{}]}', '{"keys": [1]}'])
def test_a_broken_file_lets_nobody_in_and_is_named(text: str) -> None:
    keys_file().write_text(text)
    for act in (keys.all_keys, lambda: keys.check("mlxnb_a"), lambda: keys.new("a")):
        with pytest.raises(KeysBroken, match=r"keys\.json"):
            act()
    assert issubclass(KeysBroken, MlxnbError)


def test_w67_a_keys_hash_is_not_in_its_repr() -> None:
    keys.new("a")
    (key,) = keys.all_keys()
    assert key.hash not in repr(key)


def test_keys_made_at_once_are_all_kept() -> None:
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda number: keys.new(f"k{number}"), range(24)))
    assert all(keys.check(text) for text in texts)
