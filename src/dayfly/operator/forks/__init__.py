"""Forks of Deployments: derived from their baseline and kept in their desired state."""
