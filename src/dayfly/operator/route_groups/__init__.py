"""RouteGroups applied with kubectl: their sandboxes found by labels, their hooks compiled and sealed in a run."""
