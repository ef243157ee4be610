"""This machine: the server as a process, and the command of `dayfly with` with its signals."""
