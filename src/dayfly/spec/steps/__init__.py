"""The fields of one step: its script or command, webhook or Kubernetes object, inputs and outputs."""
