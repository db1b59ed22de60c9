"""The sessions' own suite, over a socket."""

from sessions.test_session import *  # noqa: F403
