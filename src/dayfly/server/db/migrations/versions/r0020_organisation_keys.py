"""Store the organisations' keys for resource tokens, and the names of clusters in tokens by earlier keys."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "organisation_keys",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    row_level_security.enable("organisation_keys")
    op.add_column("agents", sa.Column("token_hosts", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("agents", "token_hosts")
    op.drop_table("organisation_keys")
