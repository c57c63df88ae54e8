"""The prices of models."""
