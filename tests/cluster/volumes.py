"""Folders of this machine as volumes of the runners' namespace."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.installed import RUNNERS, Installed


@contextmanager
def claimed(operator: Installed, name: str, reader: str, folder: Path) -> Iterator[Path]:
    """A new folder that steps of one plugin or hook (`publisher:name`) claim under a name."""
    folder.mkdir()
    folder.chmod(0o777)  # steps run as any user
    shape = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "100Mi"}
    operator.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                **shape,
                "capacity": size,
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": RUNNERS, "name": name},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": RUNNERS, "annotations": {"dayfly.dev/plugins": reader}},
            "spec": {**shape, "resources": {"requests": size}, "volumeName": name},
        },
    )
    yield folder
    operator.own.kubectl("delete", "persistentvolumeclaim", name, "-n", RUNNERS)
    operator.own.kubectl("delete", "persistentvolume", name)
