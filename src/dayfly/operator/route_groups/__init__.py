"""The controller for RouteGroups: which sandboxes a group has, and the run of its hooks."""
