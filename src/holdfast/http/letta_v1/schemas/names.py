"""Texts that name something. They are short: databases look them up by an index, and an index has limits."""

from typing import Annotated

from pydantic import Field

# Four bytes each at most, and PostgreSQL's index takes 2704.
MAX_NAME_CHARS = 500

# Several of these stand in one index beside a handle.
MAX_SCOPE_ID_CHARS = 100

Tag = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Handle = Annotated[
    str, Field(max_length=MAX_NAME_CHARS, description="A handle: provider/model-name.")
]
SecretName = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
# To which project or template something belongs.
ScopeId = Annotated[str, Field(max_length=MAX_SCOPE_ID_CHARS)]
