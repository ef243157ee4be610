"""What happens on this machine: the server as a process, and the command of `dayfly with` with its signals.

Called by the verbs that start or stop something. It knows no verb.
"""
