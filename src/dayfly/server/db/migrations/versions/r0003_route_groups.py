"""Route groups and their tombstones."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NEW = ("route_groups", "ended_route_groups")


def upgrade() -> None:
    op.create_table(
        "route_groups",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(30), nullable=False),
        sa.Column("routing_key", sa.String(13), nullable=False, unique=True),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("unmatched_since", sa.BigInteger, nullable=False),
        sa.Column("sealed", sa.Boolean, nullable=False),
        sa.Column("stop", sa.Text),
        sa.Column("abandon", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_index("route_groups_by_name", "route_groups", ["org", "name"], unique=True)
    op.create_table(
        "ended_route_groups",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(30), nullable=False),
        sa.Column("routing_key", sa.String(13), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ended_route_groups_by_name", "ended_route_groups", ["org", "name", "ended_at"])
    row_level_security.enable(*NEW)


def downgrade() -> None:
    for table in reversed(NEW):
        op.drop_table(table)
