"""Outputs of steps: one Secret for each attempt, and outputs that are too large for a pod status."""
