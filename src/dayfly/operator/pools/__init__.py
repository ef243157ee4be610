"""Pools in the cluster: their ledgers, the refill, and members that have no run or no pool."""
