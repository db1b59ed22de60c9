"""The sessions' own suite, over a socket."""

from sessions.test_tools import *  # noqa: F403

# this one asks a session of the same process for what it keeps to itself
del test_a_result_for_a_session_that_answers_waits_its_turn  # noqa: F821
