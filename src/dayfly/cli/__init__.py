"""The command line: a person's way to a server (`backends`, with `--context` a cluster) and to this machine (`local`).

`main` starts it; `verbs` imports a verb's file in `commands` when the verb is called, and turns each error into a line
and an exit code. What several verbs share lies beside them; `output` shows results on stdout, and all else on stderr.
It may import every other package but `pytest_plugin`, and nothing imports it. Its start-up time is measured, so modules
are imported where they are used.
"""
