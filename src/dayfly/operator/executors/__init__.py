"""One executor for each kind of unit that the operator can run."""
