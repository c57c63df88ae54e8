"""Translation of database errors to errors of Holdfast. An error that is not listed here is a bug and stays as it is.

A database error ends its transaction, so the work in a transaction must not catch it.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine, Index, PrimaryKeyConstraint, UniqueConstraint, event
from sqlalchemy.engine import ExceptionContext

from holdfast.adapters.store import tables
from holdfast.errors import (
    AlreadyExists,
    HoldfastError,
    InvalidArgument,
    NotFound,
    StaleRun,
    StoreUnavailable,
)

Translate = Callable[[BaseException], HoldfastError | None]


class TransactionConflict(StoreUnavailable):
    """Two transactions conflicted, or the connection broke before the commit: the work can be run again."""


_ONE_KEY_TWICE: Final = "Two identities got one key at the same moment."
_TWO_VECTORS: Final = "Two vectors of one text were stored or asked for at the same moment."

_UNIQUE_CONSTRAINTS: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "uq_tools_organization_id_name": (AlreadyExists, "A tool with this name already exists."),
    "uq_providers_organization_id_name": (
        AlreadyExists,
        "A provider with this name already exists.",
    ),
    "uq_mcp_servers_organization_id_name": (
        AlreadyExists,
        "An MCP server with this name already exists.",
    ),
    "uq_agent_blocks_agent_id_label": (
        AlreadyExists,
        "The agent already has a block with this label.",
    ),
    "uq_agent_secrets_agent_id_key": (
        AlreadyExists,
        "The agent already has a secret with this key.",
    ),
    "uq_runs_holder": (StaleRun, "Another run holds the thread."),
    "uq_runs_paused": (StaleRun, "Another run waits for a person on the thread."),
    # The writer has checked that these do not exist, so this is a race; the second attempt sees the other's row.
    "uq_runs_request": (TransactionConflict, "A request was sent twice at the same moment."),
    "pk_idempotency_keys": (TransactionConflict, "A request was sent twice at the same moment."),
    "uq_agent_archives_owner": (
        TransactionConflict,
        "Two first passages of an agent were stored at the same moment.",
    ),
    "uq_folders_name": (AlreadyExists, "A folder with this name already exists."),
    "uq_identities_key_in_project": (TransactionConflict, _ONE_KEY_TWICE),
    "uq_identities_key_without_project": (TransactionConflict, _ONE_KEY_TWICE),
    "uq_files_name": (TransactionConflict, "Two files got one name at the same moment."),
    "uq_contents_organization_id_digest_format": (
        TransactionConflict,
        "The same file was uploaded twice at the same moment.",
    ),
    "pk_agent_archives": (TransactionConflict, "An archive was attached twice at the same moment."),
    # A send whose first commit had an unknown outcome.
    "pk_runs": (TransactionConflict, "A run was stored twice at the same moment."),
    # Procrastinate's index of waiting jobs: the job of a run is stored before the run.
    "procrastinate_jobs_queueing_lock_idx_v1": (
        TransactionConflict,
        "A run was stored twice at the same moment.",
    ),
    "pk_calls": (TransactionConflict, "A call was written twice at the same moment."),
    "pk_context": (TransactionConflict, "A context was written twice at the same moment."),
    "pk_block_tags": (TransactionConflict, "A block was tagged twice at the same moment."),
    "uq_passage_vectors_position_model": (TransactionConflict, _TWO_VECTORS),
    "uq_message_vectors_position_model": (TransactionConflict, _TWO_VECTORS),
    "pk_passages_to_embed": (TransactionConflict, _TWO_VECTORS),
    "pk_messages_to_embed": (TransactionConflict, _TWO_VECTORS),
    "pk_step_tags": (TransactionConflict, "A step was tagged twice at the same moment."),
}


def translate_errors(engine: Engine, translate_driver_error: Translate) -> None:
    """Make the engine raise errors of Holdfast instead of database errors."""

    def translate(context: ExceptionContext) -> HoldfastError | None:
        error = context.original_exception
        if context.is_disconnect:
            return TransactionConflict(f"The connection to the database is lost: {error}")
        return _translate_python_error(error) or translate_driver_error(error)

    event.listen(engine, "handle_error", translate)


def unique_violation(constraint: str | None) -> HoldfastError:
    """Return the error for a row that a unique constraint refused."""
    kind, text = _UNIQUE_CONSTRAINTS.get(
        constraint or "", (AlreadyExists, "An object with this id already exists.")
    )
    return kind(text)


def foreign_key_violation() -> HoldfastError:
    """Return the error for a row that a foreign key refused."""
    return NotFound("An object that this one refers to does not exist.")


def _translate_python_error(error: BaseException) -> HoldfastError | None:
    """Python raises these itself for values that the database cannot store."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgument("The text holds a lone surrogate, which is not a character.")
    if isinstance(error, OverflowError):
        return InvalidArgument("A number is too large to be stored.")
    return None


def constraint_names_by_columns() -> dict[str, str]:
    """Return the names of all unique constraints by their columns: SQLite reports only the columns."""
    names: dict[str, str] = {}
    for table in tables.metadata.tables.values():
        constraints: list[Index | PrimaryKeyConstraint | UniqueConstraint] = [table.primary_key]
        constraints += [index for index in table.indexes if index.unique]
        constraints += [
            constraint
            for constraint in table.constraints
            if isinstance(constraint, UniqueConstraint)
        ]
        for constraint in constraints:
            columns = ", ".join(f"{table.name}.{column.name}" for column in constraint.columns)
            names[columns] = str(constraint.name)
    return names
