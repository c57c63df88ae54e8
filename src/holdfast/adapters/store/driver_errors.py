"""What the drivers' errors mean to us, by table. Whatever no table knows stays as it is: a bug of ours.

An error of the database ends its transaction: work that meets one lets it pass.
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
    """Two transactions met, or the connection broke, before the commit: the work may be tried again."""


_UNIQUE_CONSTRAINTS: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "uq_tools_organization_id_name": (AlreadyExists, "A tool with this name already exists."),
    "uq_providers_organization_id_name": (
        AlreadyExists,
        "A provider with this name already exists.",
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
    # These are looked for or cleared away first, so only a race gets here: the second try finds them.
    "uq_runs_request": (TransactionConflict, "A request was sent twice at the same moment."),
    "pk_calls": (TransactionConflict, "A call was written twice at the same moment."),
    "pk_context": (TransactionConflict, "A context was written twice at the same moment."),
    "pk_block_tags": (TransactionConflict, "A block was tagged twice at the same moment."),
    "pk_step_tags": (TransactionConflict, "A step was tagged twice at the same moment."),
}


def translate_errors(engine: Engine, meaning: Translate) -> None:
    """From now on the engine raises errors of ours wherever a table knows one."""

    def translate(context: ExceptionContext) -> HoldfastError | None:
        error = context.original_exception
        if context.is_disconnect:
            return TransactionConflict(f"The connection to the database is lost: {error}")
        return _translate_python_error(error) or meaning(error)

    event.listen(engine, "handle_error", translate)


def unique_violation(constraint: str | None) -> HoldfastError:
    """A unique constraint refused the row."""
    kind, text = _UNIQUE_CONSTRAINTS.get(
        constraint or "", (AlreadyExists, "An object with this id already exists.")
    )
    return kind(text)


def foreign_key_violation() -> HoldfastError:
    """A foreign key refused the row."""
    return NotFound("An object that this one refers to does not exist.")


def _translate_python_error(error: BaseException) -> HoldfastError | None:
    """The drivers leave it to Python to say that a value has no form in the database."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgument("The text holds a lone surrogate, which is not a character.")
    if isinstance(error, OverflowError):
        return InvalidArgument("A number is too large to be stored.")
    return None


def constraint_names_by_columns() -> dict[str, str]:
    """The names of unique constraints by their columns, which is how SQLite speaks of them."""
    found: dict[str, str] = {}
    for table in tables.metadata.tables.values():
        rules: list[Index | PrimaryKeyConstraint | UniqueConstraint] = [table.primary_key]
        rules += [index for index in table.indexes if index.unique]
        rules += [rule for rule in table.constraints if isinstance(rule, UniqueConstraint)]
        for rule in rules:
            columns = ", ".join(f"{table.name}.{column.name}" for column in rule.columns)
            found[columns] = str(rule.name)
    return found
