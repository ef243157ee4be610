"""How every older database becomes one of today's schema. Alembic reads this folder; see `store` for who calls it.

By itself it goes forwards only: an older Dayfly leaves a newer database alone. The way back is for an administrator who
puts an older one in its place (`store.migrate`).
"""

# Newest last. A database at another revision was made by a newer Dayfly.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
