"""The lives of ended sandboxes, for usage."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sandbox_usage",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(30), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("created_by", sa.String(253), nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
    )
    op.create_index("sandbox_usage_by_end", "sandbox_usage", ["org", "ended_at"])
    row_level_security.enable("sandbox_usage")


def downgrade() -> None:
    op.drop_table("sandbox_usage")
