"""The sessions' own suite, over a socket."""

from sessions.test_look import *  # noqa: F403
