"""Embedding models on this machine: their weights are read from installed packages, and numpy does the work."""
