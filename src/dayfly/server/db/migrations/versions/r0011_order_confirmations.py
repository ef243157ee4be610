"""Confirmations of hosts, so that a restarted server does not resend all orders."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLE = "order_confirmations"


def upgrade() -> None:
    # Earlier orders have no confirmation, so they are resent once.
    op.create_table(
        TABLE,
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("session", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
        sa.Index("order_confirmations_by_cluster", "org", "cluster"),
    )
    row_level_security.enable(TABLE)


def downgrade() -> None:
    op.drop_table(TABLE)
