"""Stored sandboxes and route groups: records, tombstones, group membership, confirmations of hosts."""
