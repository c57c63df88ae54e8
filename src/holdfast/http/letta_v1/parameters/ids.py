"""Ids in paths. A malformed one is refused before the handler runs (wire-v1 §1.8)."""

from typing import Annotated

from fastapi import Depends, Path

from holdfast.core.ids import Kind, id_pattern, is_id
from holdfast.errors import InvalidArgument
from holdfast.http.letta_v1.schemas.names import EXAMPLE_UUID


def _describe_id(kind: Kind) -> str:
    return f"The id of the {kind.name.lower().replace('_', ' ')}, '{kind}-<uuid4>'."


def _id_path(kind: Kind) -> object:
    return Path(
        pattern=id_pattern(kind),
        description=_describe_id(kind),
        examples=[f"{kind}-{EXAMPLE_UUID}"],
    )


AgentId = Annotated[str, _id_path(Kind.AGENT)]
ToolId = Annotated[str, _id_path(Kind.TOOL)]
BlockId = Annotated[str, _id_path(Kind.BLOCK)]
MessageId = Annotated[str, _id_path(Kind.MESSAGE)]
StepId = Annotated[str, _id_path(Kind.STEP)]
ConversationId = Annotated[str, _id_path(Kind.CONVERSATION)]
IdentityId = Annotated[str, _id_path(Kind.IDENTITY)]
ArchiveId = Annotated[str, _id_path(Kind.ARCHIVE)]
PassageId = Annotated[str, _id_path(Kind.PASSAGE)]
FolderId = Annotated[str, _id_path(Kind.SOURCE)]
FileId = Annotated[str, _id_path(Kind.FILE)]
GroupId = Annotated[str, _id_path(Kind.GROUP)]
ProviderId = Annotated[str, _id_path(Kind.PROVIDER)]
McpServerId = Annotated[str, _id_path(Kind.MCP_SERVER)]


def check_run_id(run_id: str) -> str:
    """Run ids are not checked by the router: a malformed one is a 400, not a 422 (wire-v1 §1.8)."""
    if not is_id(Kind.RUN, run_id):
        raise InvalidArgument(f"Invalid run ID format: {run_id}. Expected format: 'run-<uuid4>'")
    return run_id


async def _get_run_id(
    run_id: Annotated[
        str, Path(description=_describe_id(Kind.RUN), examples=[f"{Kind.RUN}-{EXAMPLE_UUID}"])
    ],
) -> str:
    return check_run_id(run_id)


RunId = Annotated[str, Depends(_get_run_id)]
