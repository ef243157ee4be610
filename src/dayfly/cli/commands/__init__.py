"""The verbs of the command line: one file for each, named like the verb."""
