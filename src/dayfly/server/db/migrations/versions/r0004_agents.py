"""Mailboxes of clusters whose agent connects to the server."""

import sqlalchemy as sa
from alembic import op

from dayfly.server.db.migrations import row_level_security

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = ("agents", "agent_outbox", "agent_inbox")


def upgrade() -> None:
    op.create_table(
        "agents",
        *_cluster_key(),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        *(_text(name, 64) for name in ("cluster_uid", "sent_digest", "acknowledged_digest")),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("session", "sent", "acknowledged", "received", "inbox", "seen_at")
        ),
        _text("namespace", 63),
        _text("version", 128),
        sa.Column("frozen", sa.Text, nullable=False),
        _cluster(),
    )
    op.create_table("agent_outbox", *_cluster_key(), _number(), _text("digest", 64), *_message(), _cluster())
    session = sa.Column("session", sa.BigInteger, nullable=False)
    op.create_table("agent_inbox", *_cluster_key(), _number(), session, *_message(), _cluster())
    row_level_security.enable(*TABLES)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _cluster_key() -> tuple["sa.Column[str]", ...]:
    return sa.Column("org", sa.String(253), primary_key=True), sa.Column("cluster", sa.String(255), primary_key=True)


def _cluster() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE")


def _number() -> "sa.Column[int]":
    return sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False)


def _text(name: str, length: int) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length), nullable=False)


def _message() -> tuple["sa.Column[int]", "sa.Column[str]"]:
    return sa.Column("at", sa.BigInteger, nullable=False), sa.Column("body", sa.Text, nullable=False)
