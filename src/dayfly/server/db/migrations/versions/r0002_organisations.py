"""Organisations, API keys, clusters with an agent and their tokens, the audit log."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

OLDER = ("clusters", "plugins", "workloads", "sandboxes", "sandbox_plugins", "sandbox_baselines", "ended_sandboxes")
NEW = ("organisations", "api_keys", "cluster_tokens", "audit_heads")


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
    op.add_column("sandboxes", sa.Column("revision", sa.Integer, nullable=False, server_default="1"))
    _create_audit()
    row_level_security.enable(*OLDER, *NEW)
    row_level_security.enable("audit", append_only=True)


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("key", sa.String(32), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("program", sa.String(253), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("object", sa.String(768), nullable=False),
        sa.Column("spec", sa.String(64), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "audit_heads",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    row_level_security.disable(*OLDER)
    for table in ("audit", "audit_heads", "cluster_tokens", "api_keys", "organisations"):
        op.drop_table(table)
    op.execute(sa.text("DELETE FROM clusters WHERE agent"))
    for table, columns in (("clusters", ("operator_version", "connected_at", "agent")), ("sandboxes", ("revision",))):
        for column in columns:
            op.drop_column(table, column)
