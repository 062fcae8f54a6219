"""Runs migrations on the connection that `mlbench.store.upgrade` hands over, inside its transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transactional_ddl=True,
    render_as_batch=True,
    target_metadata=None,
)
context.run_migrations()
