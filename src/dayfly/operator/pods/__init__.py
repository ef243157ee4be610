"""Pods of steps: where they may run, how they are built and judged, what their logs and their kubelet's Events tell."""
