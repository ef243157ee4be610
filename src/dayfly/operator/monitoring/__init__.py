"""What the operator says of itself to those who run it: log lines, figures, traces, whether it is alive and ready."""
