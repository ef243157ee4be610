"""Dayfly: short-lived resources for sandboxes, created once and certainly gone afterwards."""

__version__ = "0.1.0"
