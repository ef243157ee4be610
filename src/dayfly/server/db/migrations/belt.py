"""PostgreSQL's own wall between organisations: each table with a column `org` gets a policy when it is made.

A transaction says whose it is (`databases.enter`), and sees and writes the rows of that organisation alone. One that
says nothing sees none. SQLite has no such thing; there the queries alone keep organisations apart.
"""

from alembic import op

EVERYWHERE = "*"


def guard(*tables: str, append_only: bool = False) -> None:
    """Put the wall around these tables. It holds for their owner, too; `append_only` keeps him from what is there."""
    if op.get_bind().dialect.name != "postgresql":
        return
    mine = f"(current_setting('dayfly.org', true) IN (org, '{EVERYWHERE}'))"
    for table in tables:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        if append_only:
            op.execute(f"CREATE POLICY dayfly_org ON {table} FOR SELECT USING {mine}")
            op.execute(f"CREATE POLICY dayfly_append ON {table} FOR INSERT WITH CHECK {mine}")
        else:
            op.execute(f"CREATE POLICY dayfly_org ON {table} USING {mine} WITH CHECK {mine}")


def see_all() -> None:
    """Let the rest of this transaction see every organisation's rows, for what is done to all of them."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"SELECT set_config('dayfly.org', '{EVERYWHERE}', true)")


def unguard(*tables: str) -> None:
    """Take it away again."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in tables:
        op.execute(f"DROP POLICY dayfly_org ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
