"""The command line: a person's access to a server, to a cluster (`--context`) and to this machine.

`main` starts it; `verbs` imports a verb's file in `commands` when the verb is called and turns errors into a line and
an exit code. `backends` are the server and the cluster, `local` is this machine, `output` prints results. It may
import every package except `pytest_plugin`, and nothing imports it. Modules are imported where they are used, because
users wait for the start.
"""
