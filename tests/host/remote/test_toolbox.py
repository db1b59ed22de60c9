"""The sessions' own suite, over a socket: functions run here, the model elsewhere."""

from sessions.test_toolbox import *  # noqa: F403
