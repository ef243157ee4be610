"""Organisations, users' keys, clusters of agents and their tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "organisations",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("display_name", sa.String(253), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.String(253), nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("last_used_at", sa.BigInteger),
    )
    op.create_index("api_keys_by_org", "api_keys", ["org", "created_at"])
    op.create_table(
        "cluster_tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("masked", sa.String(512), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_connected_at", sa.BigInteger),
        sa.Column("last_connected_ip", sa.String(64)),
        sa.ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
    )
    op.create_index("cluster_tokens_by_cluster", "cluster_tokens", ["org", "cluster"])
    op.add_column("clusters", sa.Column("agent", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("clusters", sa.Column("connected_at", sa.BigInteger))
    op.add_column("clusters", sa.Column("operator_version", sa.String(64), nullable=False, server_default=""))


def downgrade() -> None:
    op.execute(sa.text("DELETE FROM clusters WHERE agent"))
    with op.batch_alter_table("clusters") as clusters:
        clusters.drop_column("operator_version")
        clusters.drop_column("connected_at")
        clusters.drop_column("agent")
    for table in ("cluster_tokens", "api_keys", "organisations"):
        op.drop_table(table)
