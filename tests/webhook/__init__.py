"""Webhooks: what is written and refused, what is sent, and what each fault of a server or of the way to it becomes."""
