"""Everything that uses pydantic-ai. It is imported in a thread when a model is first asked."""
