"""Tombstones of sandboxes: the request that ended the sandbox, and whether a create step had failed before."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # NULL: unknown, for sandboxes that ended before or that an older server archives at the same time.
    op.add_column("ended_sandboxes", sa.Column("stop", sa.Text, nullable=True))
    op.add_column("ended_sandboxes", sa.Column("failed", sa.Boolean, nullable=True))


def downgrade() -> None:
    op.drop_column("ended_sandboxes", "failed")
    op.drop_column("ended_sandboxes", "stop")
