"""Index tombstones by their time, for deletion by age and for lists of the newest."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ended_sandboxes_by_end", "ended_sandboxes", ["org", "ended_at"])
    op.create_index("ended_route_groups_by_end", "ended_route_groups", ["org", "ended_at"])


def downgrade() -> None:
    op.drop_index("ended_route_groups_by_end", "ended_route_groups")
    op.drop_index("ended_sandboxes_by_end", "ended_sandboxes")
