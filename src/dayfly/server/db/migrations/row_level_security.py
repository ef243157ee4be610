"""PostgreSQL's row-level security between organisations: each table with a column `org` gets a policy.

A transaction sets its organisation (`databases.set_org`) and can only read and write the rows of that organisation.
Without one it sees no rows. SQLite has no policies; there only the queries of `rows` keep organisations apart.
"""

from alembic import op

ALL_ORGS = "*"


def enable(*tables: str, append_only: bool = False) -> None:
    """Add policies to these tables. They also bind the owner; `append_only` forbids changes of existing rows."""
    if op.get_bind().dialect.name != "postgresql":
        return
    own = f"(current_setting('dayfly.org', true) IN (org, '{ALL_ORGS}'))"
    for table in tables:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        if append_only:
            op.execute(f"CREATE POLICY dayfly_org ON {table} FOR SELECT USING {own}")
            op.execute(f"CREATE POLICY dayfly_append ON {table} FOR INSERT WITH CHECK {own}")
        else:
            op.execute(f"CREATE POLICY dayfly_org ON {table} USING {own} WITH CHECK {own}")


def show_all_orgs() -> None:
    """Give the rest of this transaction access to the rows of all organisations."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"SELECT set_config('dayfly.org', '{ALL_ORGS}', true)")


def disable(*tables: str) -> None:
    """Remove the policies of these tables."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in tables:
        op.execute(f"DROP POLICY dayfly_org ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
