"""A whole cluster in one process: a fake API server, a simulated kubelet, real operators, and a log of the scripts.

`world` assembles it and runs it in virtual time. `kubelet` simulates scheduler, kubelet and runner. `cloud` logs what
scripts did, and checks what must be true whenever one starts. `history` reads every version that was ever stored.
`scenes` are the stories of the fault matrix.
"""
