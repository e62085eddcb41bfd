"""What alembic runs: the steps, over the connection that `deployments.state.database.connection` hands in."""

from alembic import context

from deployments.state.database.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
