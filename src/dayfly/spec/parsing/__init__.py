"""YAML and JSON text to typed data, with the place of every fault."""
