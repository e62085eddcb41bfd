"""Runs the migrations over the connection that `upgrade` hands in; alembic runs this file."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
