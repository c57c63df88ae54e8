"""The comparison of two checkouts: ratios of pairs, not of sums."""

from bench.compare import compare, values_by_name


def test_each_pair_counts_by_its_own_ratio() -> None:
    """The second pair was measured while the machine was three times slower."""
    pairs = [({"turn": 10.0}, {"turn": 11.0}), ({"turn": 30.0}, {"turn": 33.0})]
    (row,) = compare(pairs)
    assert round(row.median, 3) == round(row.low, 3) == round(row.high, 3) == 1.1
    assert row.is_worse


def test_one_outlier_at_each_end_does_not_widen_the_interval() -> None:
    ratios = [0.2, 0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03, 5.0]
    (row,) = compare([({"turn": 1.0}, {"turn": ratio}) for ratio in ratios])
    assert (row.low, row.high) == (0.97, 1.03)
    assert not row.is_worse


def test_more_pairs_make_the_interval_smaller() -> None:
    """Of 40 ratios, the 14th and the 27th."""
    (row,) = compare([({"turn": 1.0}, {"turn": float(ratio)}) for ratio in range(1, 41)])
    assert (row.low, row.high) == (14.0, 27.0)


def test_a_row_that_one_checkout_lacks_is_left_out() -> None:
    assert [row.what for row in compare([({"a": 1.0}, {"a": 1.0, "b": 1.0})])] == ["a"]


def test_rows_of_the_same_name_below_different_rows_are_kept_apart() -> None:
    rows = [
        {"what": "turn", "value": 5.0, "more_is_better": False},
        {"what": "  p95", "value": 6.0, "more_is_better": False},
        {"what": "turns/s", "value": 4.0, "more_is_better": True},
        {"what": "  p95", "value": 7.0, "more_is_better": False},
    ]

    assert values_by_name(rows) == {
        "turn": 5.0,
        "turn: p95": 6.0,
        "turns/s": 0.25,
        "turns/s: p95": 7.0,
    }
