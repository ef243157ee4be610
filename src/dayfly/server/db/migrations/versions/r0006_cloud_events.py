"""CloudEvents, pending and sent, and which server sends them."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("cloud_events", "leases")


def upgrade() -> None:
    op.create_table(
        "cloud_events",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("uid", sa.String(36), nullable=False),
        sa.Column("spec_changed_at", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Index("cloud_events_by_uid", "uid"),
    )
    pending = sa.text("body != ''")
    index = "cloud_events_pending"
    op.create_index(index, "cloud_events", ["org", "at"], sqlite_where=pending, postgresql_where=pending)
    op.create_table(
        "leases",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
    row_level_security.enable(*TABLES)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
