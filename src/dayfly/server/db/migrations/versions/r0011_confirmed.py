"""What the hosts of agents have confirmed, so that a server that begins does not tell them everything again."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import belt

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLE = "confirmed"


def upgrade() -> None:
    # Of what was told before nobody knows: it is told again, once.
    op.create_table(
        TABLE,
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("session", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("form", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
        sa.Index("confirmed_by_cluster", "org", "cluster"),
    )
    belt.guard(TABLE)


def downgrade() -> None:
    op.drop_table(TABLE)
