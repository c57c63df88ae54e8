"""Names and ids. They are short, because databases look them up in an index, and an index has limits."""

from typing import Annotated

from pydantic import Field

# Four bytes each at most, and PostgreSQL's index takes 2704.
MAX_NAME_CHARS = 500

# Several of these are in one index, together with a handle.
MAX_SCOPE_ID_CHARS = 100

Tag = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Handle = Annotated[
    str, Field(max_length=MAX_NAME_CHARS, description="A handle: provider/model-name.")
]
SecretName = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
# The id of the project or template that something belongs to.
ScopeId = Annotated[str, Field(max_length=MAX_SCOPE_ID_CHARS)]

# For descriptions and for answers to malformed ids.
EXAMPLE_UUID = "123e4567-e89b-42d3-8456-426614174000"
