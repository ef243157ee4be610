"""How every older database becomes one of today's schema. Alembic reads this folder; see `store` for who calls it."""

# Newest last. A database at another revision was made by a newer Dayfly.
REVISIONS = ("0001",)
