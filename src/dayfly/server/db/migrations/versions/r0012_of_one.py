"""Which route groups that have ended were of one cluster: a key of that cluster may look at what is left of them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Of what ended before, and of what an older server archives beside us, nobody knows.
    op.add_column("ended_route_groups", sa.Column("of_one", sa.Boolean, nullable=True))


def downgrade() -> None:
    op.drop_column("ended_route_groups", "of_one")
