"""Real operators with a real API server, and a proxy between them that applies one fault to one change of each story.

`proxy` is a TCP server through which operators access the API server with their own permissions. It counts the changes
of each story and applies a fault to one of them. `plans` defines the stories, the faults, and all names. `node`
simulates scheduler, kubelet and runner with their own credentials. `recorder` keeps every version that was ever stored,
and knows what is left. `trials` plays the stories concurrently and checks each. One operator serves all of them, so the
faults of one story affect the others.

Names identify the stories: each Sandbox has a unique name, and all objects for it contain that name.

The matrix does not cover forks, TLS between operator and proxy, and following logs (there is no kubelet, so results
come from pod status only). It also omits faults of changes that belong to no story (labels of shared namespaces and
plugins).
"""
