"""The sessions' own suite, over a socket."""

from sessions.test_schema import *  # noqa: F403
