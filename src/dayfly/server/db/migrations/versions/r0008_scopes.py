"""What of its organisation a key may touch."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import belt

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("scope", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    # Their scope is lost here, so they end: none may do more than its maker wished.
    belt.see_all()
    op.execute("DELETE FROM page_sessions WHERE key IN (SELECT id FROM api_keys WHERE scope <> '')")
    op.execute("DELETE FROM api_keys WHERE scope <> ''")
    op.drop_column("api_keys", "scope")
