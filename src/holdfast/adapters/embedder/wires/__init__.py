"""The APIs over which providers make vectors, one module each."""
