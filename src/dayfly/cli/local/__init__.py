"""Processes of this machine: the server, and the command of `dayfly with` with its signals."""
