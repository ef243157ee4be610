"""Stored sandboxes and route groups: their records, tombstones, memberships and acknowledgements of hosts."""
