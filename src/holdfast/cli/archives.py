"""``holdfast archives``: list archives, and change the embedding model of one. Returns text for people, or with ``as_json``
the server's JSON for scripts."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.text import align_columns, to_json
from holdfast.errors import CallerError

if TYPE_CHECKING:
    from holdfast.cli.api import Api

Archive = Mapping[str, Any]
# Called with how many passages have their vectors, and how many there are.
ShowProgress = Callable[[int, int], None]

_HEADINGS: Final = ("ARCHIVE", "NAME", "EMBEDDING", "CREATED")
_POLL_SECONDS: Final = 0.5


def render_list(api: "Api", *, agent: str | None, limit: int, as_json: bool) -> str:
    """List archives, the newest first."""
    archives = api.get("archives", "", agent_id=agent, limit=limit)
    if as_json:
        return to_json(archives)
    rows = [_list_row(archive) for archive in archives]
    return align_columns([_HEADINGS, *rows]) if rows else "There are no such archives."


def change_model(
    api: "Api",
    archive_id: str,
    model: str,
    *,
    skip_failed: bool,
    show: ShowProgress,
    as_json: bool,
) -> str:
    """Change the model of the archive: ask the server to go on until it is done. Can be stopped and started again."""
    # What was given up before is tried again once.
    body = {"embedding": model, "skip_failed": skip_failed, "retry_failed": True}
    while True:
        state = api.post("archives", archive_id, "reembed", body=body)
        show(state["embedded"], state["total"])
        if state["complete"]:
            break
        if state["embedded"] + state["given_up"] >= state["total"]:
            raise CallerError(_describe_failure(state))
        body["retry_failed"] = False
        time.sleep(_POLL_SECONDS)
    if as_json:
        return to_json(state)
    return f"{archive_id} has the model {model}: {state['embedded']} of {state['total']} passages have vectors."


def _list_row(archive: Archive) -> tuple[str, ...]:
    config = archive["embedding_config"] or {}
    return (archive["id"], archive["name"], config.get("handle") or "-", archive["created_at"])


def _describe_failure(state: Mapping[str, Any]) -> str:
    return (
        f"{state['given_up']} of {state['total']} passages could not be embedded ({state['error']}). The archive keeps its "
        "old model. Run the command again to try them again, or add --skip-failed to find them by their words only."
    )
