"""Alembic's entry point: runs the migrations on the connection of ``schema_upgrade``, in its transaction."""

from alembic import context

from holdfast.adapters.store import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    # On SQLite a table is changed by rebuilding it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
