"""Forks of Deployments: built from their baseline, and kept as they are wished for."""
