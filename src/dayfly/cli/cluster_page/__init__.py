"""The page for a cluster without a server: `dayfly page --context`.

The process serves the part of the REST API that the page uses. It reads the objects of the cluster with the rights of
the kubeconfig's user and stores nothing. For a forbidden request it returns the message of the API server, never an
empty result.

- `sessions`: the one-time link and the session cookie. Both end with the process.
- `entries`: one Sandbox object as JSON of the REST API. Pure.
- `sandbox_watch`: a watch of all Sandboxes, published as an event stream.
- `rights`: what the user may not do, so that the page hides those buttons.
- `sandboxes`, `logs`, `overview`: the routes, over `cluster_objects` and `cluster_logs`, which the verbs with
  `--context` also use. `handler` has what the routes share.
- `app`: the application, served until it is stopped.

The package imports the request and response types and the authentication of `server`, but not its database.
`cli.commands.page` calls `serving`.
"""
