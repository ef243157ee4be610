"""Webhooks: their fields and errors, the requests that are sent, and faults of servers and networks."""
