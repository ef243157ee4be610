"""Store the reports of hosts about leak checks, for the page, metrics, events and the audit log."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leak_checks",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("cluster", sa.String(255), primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("report", sa.Text, nullable=False),
        sa.Column("leaks", sa.Text, nullable=False),
        sa.Column("leaks_since", sa.BigInteger, nullable=False),
        sa.Column("deletions", sa.BigInteger, nullable=False),
        sa.Column("last_deletion", sa.BigInteger, nullable=False),
        sa.Column("applied_key", sa.String(32), nullable=False),
        sa.Column("applied_name", sa.String(253), nullable=False),
        sa.Column("plan", sa.String(64), nullable=False),
        sa.Column("plan_key", sa.String(32), nullable=False),
        sa.Column("plan_name", sa.String(253), nullable=False),
    )
    row_level_security.enable("leak_checks")


def downgrade() -> None:
    op.drop_table("leak_checks")
