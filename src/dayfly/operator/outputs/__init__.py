"""Outputs of steps: Secrets of attempts and resources, and outputs that are too large for a pod status."""
