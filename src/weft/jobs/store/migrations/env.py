"""Alembic's entry: it runs migrations on the connection that `schema.upgrade` gives."""

from __future__ import annotations

from alembic import context

from weft.jobs.store.tables import metadata  # of the tables of all modules, which the first version loads

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by making another
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
