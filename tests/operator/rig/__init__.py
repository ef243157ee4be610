"""A whole cluster in this process: fake API server, a kubelet that plays pods, any number of real operators, the truth.

`world` puts it together and runs it in virtual time; `kubelet` plays scheduler, kubelet and runner; `cloud` is the log of
what scripts really did, with what must hold whenever one starts; `history` reads every version that was ever stored;
`scenes` are the lives that the matrix goes through.
"""
