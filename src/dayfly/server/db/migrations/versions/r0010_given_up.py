"""Of which that has ended the cleanup was given up."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ("ended_sandboxes", "ended_route_groups")


def upgrade() -> None:
    # Of what ended before, and of what an older server archives beside us, nobody notes it.
    for table in TABLES:
        op.add_column(table, sa.Column("given_up", sa.Boolean, nullable=True))
        op.create_index(f"{table}_given_up", table, ["org", "given_up", "ended_at"])


def downgrade() -> None:
    for table in TABLES:
        op.drop_index(f"{table}_given_up", table)
        op.drop_column(table, "given_up")
