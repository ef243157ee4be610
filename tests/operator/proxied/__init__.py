"""Real operators before a real API server, with a proxy between them that harms one change of each life.

`proxy` is a TCP server through which operators speak to the API server, under their own account's rights; it counts the
changes of each life and brings about one harm at one of them. `plans` says which lives, which harms, and what everyone
is called. `node` plays scheduler, kubelet and runner with their own credentials. `recorder` keeps every version that was
ever stored, and knows what is left. `trials` lives the lives side by side, and judges each: one operator serves them
all, so the harms that meet one life are weather to the others.

Who is who is told by names: each life's Sandbox has a name of its own, and whatever is made for it names that.

Not shown here: following logs (there is no kubelet to ask, so pod status alone tells of ends), TLS between operator and
proxy, harm to changes that belong to no life (labels of the namespace and the plugins that all share), and forks.
"""
