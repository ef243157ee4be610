"""Endpoints that only read: reports, the overview of the page, streams of changes, routing rules."""
