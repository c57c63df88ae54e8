"""Alembic's entry: runs the steps on the connection that ``migrate`` opened, in its transaction."""

from alembic import context

from holdfast.adapters.store import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    # SQLite changes a table by rebuilding it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
