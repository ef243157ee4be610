"""Callers and the scopes of their keys."""
