"""Pool members in the cluster: those without a run are recovered or removed."""
