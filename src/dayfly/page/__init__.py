"""What does a browser load? The page's built files, and the headers under which a browser may run them.

The page itself is TypeScript, in the folder `page` at the top; `make page` builds it into `static/`, which is not in
git. Everything that it shows comes from the REST API, as for any other client: nothing here knows a sandbox, a store or
a key. Called by `control`, which serves it.
"""
