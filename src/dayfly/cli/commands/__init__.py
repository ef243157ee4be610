"""The verbs of the command line: one file for each, named as the verb.

`dayfly.cli.verbs` imports a file when its verb is called. The verb `with` is in `with_command`, because a module cannot
have the name of a keyword.
"""
