"""Sessions of the page."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "page_sessions",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("code", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Index("page_sessions_by_end", "expires_at"),
    )
    row_level_security.enable("page_sessions")


def downgrade() -> None:
    op.drop_table("page_sessions")
