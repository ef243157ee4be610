"""Pods of steps: namespaces, slots, manifests, logs and the Events of kubelets."""
