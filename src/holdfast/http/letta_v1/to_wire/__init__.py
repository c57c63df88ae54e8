"""Core values as V1 shows them: pure, one module for each resource."""
