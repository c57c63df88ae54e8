"""Holdfast: a self-hosted server for stateful LLM agents whose runs can be trusted."""

__version__ = "0.1.0"
