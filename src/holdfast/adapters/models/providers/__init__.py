"""The table of model providers. Everything that depends on which provider it is, is read from a row of it.

``row`` says what a row holds, ``table`` has the rows, ``known_models`` what providers publish about their models,
``profiles`` pydantic-ai's description of them.
"""
