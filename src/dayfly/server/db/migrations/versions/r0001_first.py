"""First schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clusters",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "plugins",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("name", sa.String(253), primary_key=True),
        sa.Column("version", sa.String(128), primary_key=True),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "workloads",
        sa.Column("org", sa.String(253), primary_key=True),
        sa.Column("namespace", sa.String(63), primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    _create_sandboxes()
    op.create_table(
        "ended_sandboxes",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(30), nullable=False),
        sa.Column("routing_key", sa.String(13), nullable=False),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ended_sandboxes_by_name", "ended_sandboxes", ["org", "name", "ended_at"])


def _create_sandboxes() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("name", sa.String(30), nullable=False),
        sa.Column("routing_key", sa.String(13), nullable=False, unique=True),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("lease_seconds", sa.Integer, nullable=False),
        sa.Column("sealed", sa.Boolean, nullable=False),
        sa.Column("stop", sa.Text),
        sa.Column("abandon", sa.Text),
    )
    op.create_index("sandboxes_by_name", "sandboxes", ["org", "name"], unique=True)
    op.create_table(
        "sandbox_plugins",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("resource", sa.String(30), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("plugin", sa.String(253), nullable=False),
        sa.Column("version", sa.String(128), nullable=False),
        sa.ForeignKeyConstraint(["uid"], ["sandboxes.uid"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["org", "plugin", "version"], ["plugins.org", "plugins.name", "plugins.version"]),
    )
    op.create_index("sandbox_plugins_by_plugin", "sandbox_plugins", ["org", "plugin", "version"])
    op.create_table(
        "sandbox_baselines",
        sa.Column("uid", sa.String(36), primary_key=True),
        sa.Column("org", sa.String(253), nullable=False),
        sa.Column("namespace", sa.String(63), primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.ForeignKeyConstraint(["uid"], ["sandboxes.uid"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["org", "namespace", "name"], ["workloads.org", "workloads.namespace", "workloads.name"]
        ),
    )
    op.create_index("sandbox_baselines_by_workload", "sandbox_baselines", ["org", "namespace", "name"])


def downgrade() -> None:
    tables = (
        "ended_sandboxes",
        "sandbox_baselines",
        "sandbox_plugins",
        "sandboxes",
        "workloads",
        "plugins",
        "clusters",
    )
    for table in tables:
        op.drop_table(table)
