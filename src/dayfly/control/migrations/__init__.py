"""How every older database becomes one of today's schema. Alembic reads this folder; see `store` for who calls it.

There is only forwards: an older Dayfly leaves a newer database alone.
"""

# Newest last. A database at another revision was made by a newer Dayfly.
REVISIONS = ("0001",)
