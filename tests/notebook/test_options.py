"""How a magic's line is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from mlxnb.notebook.commands import CHAT, LOAD, PREFIX, TURNS, VERBS, unescaped
from mlxnb.notebook.options import take_word
from mlxnb.notebook.verbatim import filled


@pytest.mark.parametrize(
    ("line", "word", "rest"),
    [
        ("one two", "one", "two"),
        ("'one two' three", "one two", "three"),
        ('"one two" three', "one two", "three"),
        ("a'b c'd e", "ab cd", "e"),
        ("'it\"s' x", 'it"s', "x"),
        (r'"a \"b\" \\ \n" x', r'a "b" \ \n', "x"),
        (r"'a \n' x", r"a \n", "x"),
        (r"C:\dir\file x", r"C:\dir\file", "x"),
        ("'' x", "", "x"),
        ("one", "one", ""),
    ],
)
def test_a_word_is_taken_as_a_shell_would(line: str, word: str, rest: str) -> None:
    assert take_word(line) == (word, rest)


@given(st.text(alphabet="ab '\"\\", min_size=1))
def test_quoting_any_text_gives_it_back(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert take_word(quoted + " rest") == (text, "rest")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"\n\n", "\n\n"),
        (r"a\tb", "a\tb"),
        (r"\\n", r"\n"),
        (r"\\", "\\"),
        (r"\x", r"\x"),
        ("\\", "\\"),
        (r"\\\n", "\\\n"),
        ("plain", "plain"),
    ],
)
def test_stop_texts_may_hold_newlines(written: str, text: str) -> None:
    assert unescaped(written) == text


def test_options_stand_before_and_after_arguments() -> None:
    given = LOAD.parse("some/path --adapter 'my adapter' -o info --no-progress")
    assert (given.name, given.adapter, given.output, given.no_progress) == (
        "some/path",
        "my adapter",
        "info",
        True,
    )


def test_what_is_not_given_is_empty() -> None:
    given = CHAT.parse_text("hello")
    assert (given.text, given.session, given.stop, given.temp) == ("hello", None, [], None)
    assert TURNS.parse("").wide is False


def test_a_repeated_option_is_a_list() -> None:
    assert PREFIX.parse("--pin a --pin b --unpin c").pin == ["a", "b"]
    assert CHAT.parse_text(r"--stop x --stop '\n' hi").stop == ["x", "\n"]


def test_many_values_end_at_the_next_option() -> None:
    given = CHAT.parse("--var a b c -t 1 --var d")
    assert (given.var, given.temp) == (["a", "b", "c", "d"], 1.0)


def test_two_dashes_end_the_options_of_a_word_line() -> None:
    assert LOAD.parse("-- --no-progress").name == "--no-progress"


@pytest.mark.parametrize("text", ["-5 is negative", "- item", "-", "—dash", "-.5"])
def test_a_dash_without_a_letter_begins_the_text(text: str) -> None:
    assert CHAT.parse_text(text).text == text


def test_the_text_keeps_its_quotes_even_open_ones() -> None:
    assert CHAT.parse_text("-t 0 it's \"open").text == "it's \"open"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "NAME is missing"),
        ("a b", "unexpected 'b'"),
        ("a --adapter", "--adapter needs a value (PATH)"),
        ("a --no-progress=1", "--no-progress takes no value"),
        ("a --adaptr x", "no option --adaptr"),
        ("'a", "a ' is not closed"),
    ],
)
def test_a_wrong_line_raises_usage_error_itself(line: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        LOAD.parse(line)
    assert type(caught.value) is UsageError
    assert words in str(caught.value)


def test_a_mistake_names_the_magic_and_its_help() -> None:
    with pytest.raises(UsageError, match=r"^%mlx_session rewind: .* \(help: %mlx_session\?\)$"):
        VERBS["rewind"].parse("1 2 3")


@given(
    st.text(),
    st.dictionaries(st.sampled_from(["a", "b", "ab"]), st.sampled_from(["{a}", "{b}", "1"])),
)
def test_filling_is_one_pass_over_the_given_names(text: str, values: dict[str, str]) -> None:
    parts = {name: f"{{{name}}}" for name in ("a", "b", "ab", "c")}
    template = text.replace("{", "").replace("}", "") + "".join(parts.values())
    expected = text.replace("{", "").replace("}", "") + "".join(
        values.get(name, part) for name, part in parts.items()
    )
    assert filled(template, values) == expected
