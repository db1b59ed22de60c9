"""The sessions' own suite, over a socket."""

from sessions.test_async import *  # noqa: F403

# here the pool that the test takes away is the host's too
del test_many_answers_at_once_need_no_thread_of_the_pool  # noqa: F821
