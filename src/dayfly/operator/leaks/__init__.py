"""Leak checks in the cluster: their stored states, the sweeps, and their runs, which list and delete."""
