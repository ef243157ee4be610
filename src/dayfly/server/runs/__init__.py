"""The service for sandboxes and route groups: create, change, end, and the state of each."""
