"""A real Kubernetes for tests, made of the project's own pinned build and a few Debian packages.

`up` starts a cluster and `down` ends it. The module `cluster` does the same for Python; `images` loads images into a
cluster. A cluster is one process tree in separate mount, network and process namespaces. So any number run side by side
on standard ports, the machine is not changed, and the end of its process 1 ends all of it.

This package does not know Dayfly and imports only Python's standard library, so that it runs before anything is
installed. It is called by tests (`tests/cluster/conftest.py`) and by developers in a shell.
"""
