"""Scopes of API keys."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("scope", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    # Without its scope a key would have more rights than before, so keys with a scope are deleted.
    row_level_security.show_all_orgs()
    op.execute("DELETE FROM page_sessions WHERE key IN (SELECT id FROM api_keys WHERE scope <> '')")
    op.execute("DELETE FROM api_keys WHERE scope <> ''")
    op.drop_column("api_keys", "scope")
