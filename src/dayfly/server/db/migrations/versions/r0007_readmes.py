"""Readmes of plugins and the time of their last change."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("plugins", sa.Column("readme", sa.Text, nullable=False, server_default=""))
    op.add_column("plugins", sa.Column("readme_updated_at", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("plugins", "readme_updated_at")
    op.drop_column("plugins", "readme")
