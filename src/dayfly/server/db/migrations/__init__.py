"""Alembic migrations from older schemas. `Store.open` upgrades a database and never downgrades it.

An administrator who goes back to an older Dayfly downgrades explicitly (`Store.migrate`).
"""

# Newest last. A database with another revision was written by a newer Dayfly.
REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
    "0019",
    "0020",
)
