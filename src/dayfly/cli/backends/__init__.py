"""Where a verb reads and changes things: a server (`target_server`), or a cluster with Dayfly's operator (`cluster`).

`hosts` finds the one that the command line means; `protocol` states what both can do. It knows no verb.
"""
