"""Steps as pods: one container with the image of the user and the runner as its first process.

`render` makes the manifest with Dayfly's scheduling gate and finalizer, and `policy` checks it against an allow-list.
`read` turns a pod into a fact, `logs` splits its log, and `run` creates, starts, recalls and deletes pods. `names`
derives all names. `pod_precheck` finds steps whose pod would always be refused.
"""
