"""The page for a cluster without a server: `dayfly page --context`.

It speaks the part of the REST API that the page asks for, made from the cluster's own objects and with the rights of
the kubeconfig's user alone: it stores nothing and may nothing that they may not. What is forbidden is answered in the
API server's own sentence, never as if there were nothing.

- `sessions`: the link that works once, and the cookie for which it is handed over; they end with the process.
- `entries`: one Sandbox object as the page knows it. Pure.
- `sandbox_watch`: all of them by one watch, told as a stream.
- `rights`: what whoever asks may not do, for buttons that are not there.
- `sandboxes`, `logs`, `overview`: the addresses, each a few lines over `cluster_objects` and `cluster_logs`, which the
  verbs with `--context` use as well; `handler`: what they share.
- `app`: all of it as one application, served until it is stopped.

It imports `control` for the forms of requests and answers and for who is let in, and never its store. Called by
`cli.commands.page` through `serving`.
"""
