"""Synchronisation with hosts: what each must know, and the mailboxes of clusters that dial in."""
