"""Object steps: their fields and errors, rendered manifests, observed states, and refused kinds."""
