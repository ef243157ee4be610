"""Alembic's entry point: runs the revisions on the store's connection, in its transaction."""

from alembic import context

from dayfly.server.db.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
