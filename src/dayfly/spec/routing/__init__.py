"""Routing keys, routing rules, endpoints, and the label matches of route groups."""
