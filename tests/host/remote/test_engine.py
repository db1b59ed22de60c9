"""The sessions' own suite, over a socket."""

from sessions.test_engine import *  # noqa: F403
