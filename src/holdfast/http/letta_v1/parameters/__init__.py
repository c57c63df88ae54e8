"""Path and query parameters that several routes share."""
