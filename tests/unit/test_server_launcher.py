"""The launcher of test servers: what is wrong with it is said, and never taken for a process."""

import os

import pytest
from tests.support.server_launcher import ForkedProcess


def test_a_launcher_that_has_ended_is_not_taken_for_a_process() -> None:
    """Its pid would be 0, and a signal to 0 reaches the tests themselves."""
    output, child_output = os.pipe()
    status, child_status = os.pipe()
    os.close(child_output)
    os.close(child_status)

    with pytest.raises(ChildProcessError, match="has ended"):
        ForkedProcess(output, status)
