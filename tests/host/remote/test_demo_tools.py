"""The sessions' own suite, over a socket."""

from sessions.test_demo_tools import *  # noqa: F403
