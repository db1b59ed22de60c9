"""The sessions' own suite, over a socket."""

from sessions.test_export import *  # noqa: F403
