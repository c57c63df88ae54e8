"""Making vectors of texts: over pydantic-ai with the providers of ``adapters/models``, or with a model on this machine."""
