"""CloudEvents for the receiver that the administrator names."""
