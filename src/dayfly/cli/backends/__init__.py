"""The places where a verb reads and changes things: a server, or a cluster with the operator.

`hosts` finds the one that the command line means; `protocol` states what both can do. It knows no verb.
"""
