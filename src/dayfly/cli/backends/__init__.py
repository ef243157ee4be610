"""The backends of the verbs: a server, or a cluster with the operator.

`hosts` returns the backend that the command line selects, and `protocol` defines the operations of both. The package
must not import verbs.
"""
