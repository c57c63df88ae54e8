"""Money is whole billionths of a US dollar: exact, and a sum stays exact."""

NANOS_PER_DOLLAR = 1_000_000_000
