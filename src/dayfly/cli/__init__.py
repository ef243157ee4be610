"""The command line: a person's access to a server, to a cluster (`--context`) and to this machine.

`main` starts it. `verbs` imports the module of a verb from `commands` when the verb is called, and turns each error
into a line and an exit code. `backends` are the server and the cluster, `local` is this machine, `output` prints
results. The package may import every package except `pytest_plugin`, and no package imports it. Most imports are inside
functions to keep the start fast.
"""
