"""Keys for agents, their budgets and their sessions."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("used_seconds", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("sandboxes", sa.Column("session", sa.String(16), nullable=False, server_default=""))
    op.add_column("sandboxes", sa.Column("reserved_seconds", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("sandboxes_by_creator", "sandboxes", ["org", "creator_key", "session"])
    op.add_column("ended_sandboxes", sa.Column("creator_key", sa.String(32), nullable=False, server_default=""))
    op.add_column("ended_sandboxes", sa.Column("session", sa.String(16), nullable=False, server_default=""))
    op.create_table(
        "agent_sessions",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    op.create_index("agent_sessions_by_key", "agent_sessions", ["org", "key"])
    op.create_index("agent_sessions_by_end", "agent_sessions", ["expires_at"])
    row_level_security.enable("agent_sessions")


def downgrade() -> None:
    # The older server rejects keys for agents, because it does not know their role. They are kept for an upgrade.
    op.drop_table("agent_sessions")
    op.drop_column("ended_sandboxes", "session")
    op.drop_column("ended_sandboxes", "creator_key")
    op.drop_index("sandboxes_by_creator", "sandboxes")
    op.drop_column("sandboxes", "reserved_seconds")
    op.drop_column("sandboxes", "session")
    op.drop_column("api_keys", "used_seconds")
