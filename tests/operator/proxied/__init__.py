"""Real operators before a real API server, with a proxy between them that harms one change of each life.

`proxy` is a TCP server through which operators speak to the API server; it counts the changes of each life and brings
about one harm at one of them. `plans` says which lives, which harms, and what everyone is called. `node` plays scheduler,
kubelet and runner with their own credentials; logs cannot be followed there, so pod status alone tells of ends.
`recorder` keeps every version that was ever stored, and knows what is left. `trials` lives the lives side by side and
judges each.

Who is who is told by names: each life's Sandbox has a name of its own, and whatever is made for it names that.
"""
