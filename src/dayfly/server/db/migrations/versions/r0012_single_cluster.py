"""Tombstones of route groups: whether the group was restricted to one cluster, whose keys may read it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL: unknown, for groups that ended before or that an older server archives at the same time.
    op.add_column("ended_route_groups", sa.Column("single_cluster", sa.Boolean, nullable=True))


def downgrade() -> None:
    op.drop_column("ended_route_groups", "single_cluster")
