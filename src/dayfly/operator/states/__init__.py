"""Terraform states in a cluster: kept in Secrets of the operator's own namespace, served by each of its replicas."""
