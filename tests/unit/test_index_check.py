"""Which messages are known to be in the index of words."""

from holdfast.core.index_check import IndexCheck


def test_a_pass_without_older_servers_settles_everything() -> None:
    check = IndexCheck().begin(100, is_final=True)
    assert check.current is not None
    assert (check.current.bottom, check.current.below) == (0, 101)
    check = check.advance(40)
    assert check.current is not None
    assert check.current.below == 40
    check = check.advance(None)
    assert check == IndexCheck(checked_to=100, seen_to=100)
    assert not check.is_due(100, is_final=True)
    assert check.is_due(101, is_final=True)


def test_a_pass_beside_an_older_server_is_done_again_when_that_is_gone() -> None:
    check = IndexCheck().begin(100, is_final=False).advance(None)
    assert check == IndexCheck(checked_to=0, seen_to=100)
    assert not check.is_due(100, is_final=False)
    again = check.begin(120, is_final=False)
    assert again.current is not None
    assert again.current.bottom == 100
    # What it has stored late, with a lower position, is found by the last pass.
    assert check.is_due(100, is_final=True)
    last = check.begin(120, is_final=True)
    assert last.current is not None
    assert last.current.bottom == 0
    assert last.advance(None) == IndexCheck(checked_to=120, seen_to=120)


def test_a_pass_that_was_interrupted_goes_on() -> None:
    check = IndexCheck(checked_to=50, seen_to=50).begin(100, is_final=True).advance(70)
    assert check.is_due(100, is_final=True)
    assert check.advance(None) == IndexCheck(checked_to=100, seen_to=100)
    assert IndexCheck(checked_to=5).advance(3) == IndexCheck(checked_to=5)
