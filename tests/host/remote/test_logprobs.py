"""The sessions' own suite, over a socket."""

from sessions.test_logprobs import *  # noqa: F403
