"""Records of the resources of ended sandboxes, for leak checks."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ended_resources",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("uid", sa.String(36), nullable=False),
        sa.Column("plugin", sa.String(253), nullable=False),
        sa.Column("version", sa.String(128), nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ended_resources_by_end", "ended_resources", ["org", "ended_at"])
    row_level_security.enable("ended_resources")


def downgrade() -> None:
    op.drop_table("ended_resources")
