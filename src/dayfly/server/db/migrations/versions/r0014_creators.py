"""The key that created a sandbox."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Empty: unknown, for sandboxes of older servers.
    op.add_column("sandboxes", sa.Column("created_by", sa.String(253), nullable=False, server_default=""))
    op.add_column("sandboxes", sa.Column("creator_key", sa.String(32), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("sandboxes", "creator_key")
    op.drop_column("sandboxes", "created_by")
