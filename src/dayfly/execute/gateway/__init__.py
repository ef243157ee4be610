"""Routes with the Gateway API: for each route to a baseline, Dayfly creates an additional route to the fork.

- `rules`: the rules of the additional route (pure)
- `render`: the manifests of routes and Services (pure)
- `preview`: the route of a preview address (pure)
- `read`: whether Gateways have accepted a route (pure)
- `run`: writes routes

Routes of other owners are never changed. An additional route has the Gateways, hosts, paths and filters of the existing
route, and matches only requests that carry a key.

This package does not know sandboxes.
"""
