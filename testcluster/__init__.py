"""A real Kubernetes for tests, made of the project's own pinned build and a few Debian packages.

`up` starts a cluster and `down` ends it; `cluster` is the same for Python, `images` brings images into a cluster.
A cluster is one process tree in mount, network and process namespaces of its own: any number run side by side on
standard ports, nothing of the machine is changed, and the death of its process 1 ends all of it.

The room knows nothing of Dayfly and imports nothing but Python's standard library, so that it runs before
anything is installed. Tests call it (`tests/cluster/conftest.py`), and people at a shell.
"""
