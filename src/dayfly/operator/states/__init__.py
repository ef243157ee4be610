"""Terraform states in a cluster: stored in Secrets, served by each replica."""
