"""The sessions' own suite of comparisons, over a socket: what goes over it."""

from sessions.test_compare import (
    test_a_session_of_another_engine_is_told,
    test_a_side_that_fails_has_no_answer_and_says_why,
    test_an_interrupt_keeps_the_sides_that_have_answered,
    test_models_answer_side_by_side,
    test_sessions_answer_from_their_past_and_stay_as_they_were,
    test_settings_are_sides_of_their_own,
)

__all__ = [
    "test_a_session_of_another_engine_is_told",
    "test_a_side_that_fails_has_no_answer_and_says_why",
    "test_an_interrupt_keeps_the_sides_that_have_answered",
    "test_models_answer_side_by_side",
    "test_sessions_answer_from_their_past_and_stay_as_they_were",
    "test_settings_are_sides_of_their_own",
]
