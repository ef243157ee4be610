"""Pods of steps: namespaces, slots, manifests, logs and Events."""
