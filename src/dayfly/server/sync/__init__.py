"""Synchronisation with hosts: pending orders, and the mailboxes of clusters that connect to the server."""
