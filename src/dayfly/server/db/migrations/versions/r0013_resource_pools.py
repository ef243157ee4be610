"""Resource pools, the plugin version of each, and their tombstones."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NEW = ("resource_pools", "pool_plugins", "ended_resource_pools")


def upgrade() -> None:
    op.create_table(
        "resource_pools",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("sealed", sa.Boolean, nullable=False),
        sa.Column("stop", sa.Text),
        sa.Column("abandon", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_index("resource_pools_by_name", "resource_pools", ["org", "name"], unique=True)
    op.create_table(
        "pool_plugins",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("plugin", sa.String(253), nullable=False),
        sa.Column("version", sa.String(128), nullable=False),
        sa.ForeignKeyConstraint(["uid"], ["resource_pools.uid"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["org", "plugin", "version"], ["plugins.org", "plugins.name", "plugins.version"]),
    )
    op.create_index("pool_plugins_by_plugin", "pool_plugins", ["org", "plugin", "version"])
    op.create_table(
        "ended_resource_pools",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("abandoned", sa.Boolean),
    )
    op.create_index("ended_resource_pools_by_name", "ended_resource_pools", ["org", "name", "ended_at"])
    row_level_security.enable(*NEW)


def downgrade() -> None:
    for table in ("ended_resource_pools", "pool_plugins", "resource_pools"):
        op.drop_table(table)
