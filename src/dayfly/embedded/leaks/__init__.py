"""Leak checks of the embedded host: their lists, and the runs that list and delete."""
