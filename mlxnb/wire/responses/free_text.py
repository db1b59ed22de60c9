"""The one string in a custom tool's arguments, read while their JSON is written."""

from __future__ import annotations

import json
import re

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_HEX = "[0-9a-fA-F]"
# Half of a character beyond the BMP waits for what follows it: its other half, as a rule.
_BODY = re.compile(
    rf'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB]){_HEX}{{4}}'
    rf"|\\u{_HEX}{{4}}(?=[^\\]|\\[^u]|\\u{_HEX}{{4}}))*"
)
LONGEST_HEAD = 256
"""Characters in which the string must have begun."""


class FreeText:
    """Reads ``{"input": "…"}`` piece by piece.

    JSON of any other shape gives nothing: its call is known when it is whole.
    """

    __slots__ = ("_begun", "_held", "_over")

    def __init__(self) -> None:
        self._held = ""
        self._begun = False
        self._over = False

    def feed(self, text: str) -> str:
        """What the next piece of JSON says of the string."""
        if self._over:
            return ""
        self._held += text
        if not self._begun and not self._begin():
            return ""
        found = _BODY.match(self._held)
        assert found is not None, "the pattern matches the empty string"
        self._over = self._held.startswith('"', found.end())
        self._held = self._held[found.end() :]
        return _decoded(found[0])

    def _begin(self) -> bool:
        head = _HEAD.match(self._held)
        if head is None:
            self._over = len(self._held) > LONGEST_HEAD
            return False
        self._begun, self._held = True, self._held[head.end() :]
        return True


def _decoded(body: str) -> str:
    """The text that a JSON string's inside stands for; lone halves become U+FFFD."""
    text: str = json.loads(f'"{body}"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
