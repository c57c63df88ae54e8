"""The unit of money: whole billionths of a US dollar, so that sums are exact."""

NANOS_PER_DOLLAR = 1_000_000_000
