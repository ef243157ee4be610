"""The verbs of the command line. Each verb has a file of its name."""
