"""The sessions' own suite of columns, over a socket: what goes over it."""

from sessions.test_map import (
    test_a_full_queue_is_waited_for,
    test_a_model_that_goes_ends_the_run_and_what_is_done_stays,
    test_a_model_that_is_not_loaded_is_told,
    test_a_row_that_fails_has_no_answer_and_says_why,
    test_a_schema_that_cannot_be_enforced_is_told,
    test_a_seed_draws_for_each_row_as_it_does_alone,
    test_an_interrupt_while_all_rows_run_stops_them,
    test_an_interrupted_run_goes_on_without_repeating,
    test_answers_of_a_schema_are_columns,
    test_kv_that_cannot_be_rewound_is_computed_once_too,
    test_sessions_are_as_they_were,
    test_the_result_has_the_index_of_the_rows_and_the_facts_of_the_turns,
    test_what_a_message_begins_with_can_be_computed_ahead,
    test_what_all_prompts_share_is_computed_once,
)

__all__ = [
    "test_a_full_queue_is_waited_for",
    "test_a_model_that_goes_ends_the_run_and_what_is_done_stays",
    "test_a_model_that_is_not_loaded_is_told",
    "test_a_row_that_fails_has_no_answer_and_says_why",
    "test_a_schema_that_cannot_be_enforced_is_told",
    "test_a_seed_draws_for_each_row_as_it_does_alone",
    "test_an_interrupt_while_all_rows_run_stops_them",
    "test_an_interrupted_run_goes_on_without_repeating",
    "test_answers_of_a_schema_are_columns",
    "test_kv_that_cannot_be_rewound_is_computed_once_too",
    "test_sessions_are_as_they_were",
    "test_the_result_has_the_index_of_the_rows_and_the_facts_of_the_turns",
    "test_what_a_message_begins_with_can_be_computed_ahead",
    "test_what_all_prompts_share_is_computed_once",
]
