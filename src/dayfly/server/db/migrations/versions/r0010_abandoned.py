"""Tombstones: whether the cleanup was abandoned."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ("ended_sandboxes", "ended_route_groups")


def upgrade() -> None:
    # NULL: unknown, for runs that ended before or that an older server archives at the same time.
    for table in TABLES:
        op.add_column(table, sa.Column("abandoned", sa.Boolean, nullable=True))
        op.create_index(f"{table}_abandoned", table, ["org", "abandoned", "ended_at"])


def downgrade() -> None:
    for table in TABLES:
        op.drop_index(f"{table}_abandoned", table)
        op.drop_column(table, "abandoned")
