"""Runs through the official client, where they are kept in PostgreSQL: the tests of wire-v1 §8.4, with another server."""

import pytest
from tests.server_process import ServerProcess
from tests.wire import test_callbacks, test_cancel, test_cancel_approvals, test_messages, test_runs
from tests.wire.conftest import MODELS

pytestmark = pytest.mark.slow


@pytest.fixture
def server(server_on_postgresql: ServerProcess) -> ServerProcess:
    return server_on_postgresql


@pytest.fixture
def model() -> str:
    """One will do: to the database all providers are alike."""
    return MODELS["openai"]


# Lines 118 to 128 and 130 to 132.
test_no_run_for_nobody = test_runs.test_no_run_is_created_for_an_agent_that_does_not_exist
test_a_run_is_fetched_by_its_id = test_runs.test_a_run_is_fetched_by_its_id
test_the_client_asks_for_runs_by_anything = test_runs.test_the_client_asks_for_runs_by_anything
test_runs_are_filtered = test_runs.test_runs_are_filtered
test_runs_are_listed = test_runs.test_runs_are_listed_newest_first_with_their_duration
test_a_deleted_run_is_gone = test_runs.test_a_deleted_run_is_gone_and_what_was_said_stays
test_the_end_of_a_run_is_on_record = test_runs.test_the_end_of_a_run_is_on_record
test_a_conversation_is_free = test_runs.test_a_conversation_is_free_once_its_run_has_failed
test_usage_messages_and_steps_of_a_run = test_runs.test_usage_messages_and_steps_of_a_run
test_totals_that_no_step_reported_stay_null = test_runs.test_totals_that_no_step_reported_stay_null
test_the_wished_message_types_are_shown = (
    test_messages.test_the_wished_message_types_are_shown_and_all_are_stored
)

# Line 129.
receiver = test_callbacks.receiver
test_the_end_of_a_run_is_told = (
    test_callbacks.test_the_end_of_a_run_is_told_once_and_the_outcome_is_shown
)

# Lines 133 to 136.
agent = test_cancel_approvals.agent
paused = test_cancel_approvals.paused
test_what_is_over_stays_as_it_is = (
    test_cancel.test_what_is_over_stays_as_it_is_and_what_is_not_there_is_not_found
)
test_cancelling_a_pause_denies_the_call = (
    test_cancel_approvals.test_cancelling_a_pause_denies_the_call_and_lets_go_of_the_agent
)
test_a_call_that_waited_beside_the_held_one = (
    test_cancel_approvals.test_a_call_that_waited_beside_the_held_one_is_denied_with_it
)
test_a_pause_that_the_agent_has_forgotten = (
    test_cancel_approvals.test_a_pause_that_the_agent_has_forgotten_leaves_nothing_to_deny
)
