"""Leak checks: the endpoints that pass them to the hosts, which keep them."""
