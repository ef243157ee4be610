"""Permissions of the account that creates objects: granted by Dayfly's printed command or at once, and revoked."""

import contextlib
import shlex
from collections.abc import Iterator

from tests.cluster.installed import Installed

from dayfly.execute.object.run import ACCOUNT
from dayfly.operator.objects import grants


def type_line(operator: Installed, line: str) -> None:
    """Run the command that an administrator was given."""
    for command in line.split(" && "):
        kubectl, *words = shlex.split(command)
        assert kubectl == "kubectl"
        operator.own.kubectl(*words)


def take_back(operator: Installed, namespace: str, resource: str) -> None:
    """Remove what that line has made."""
    _remove(operator, namespace, f"{ACCOUNT}-{resource}")


@contextlib.contextmanager
def granted(operator: Installed, namespace: str, *resources: str) -> Iterator[None]:
    """Permit the account of a namespace to create these resources: `jobs.batch`, `secrets`."""
    apart = [resource.partition(".") for resource in resources]
    verbs = grants.VERBS.split(",")
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": verbs} for plural, _, group in apart]
    meta = {"name": f"{ACCOUNT}-of-a-test", "namespace": namespace}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": meta}
    of = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": meta["name"]}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    operator.apply(
        {**rbac, "kind": "Role", "rules": rules},
        {**rbac, "kind": "RoleBinding", "roleRef": of, "subjects": [account]},
    )
    try:
        yield
    finally:
        _remove(operator, namespace, meta["name"])


def _remove(operator: Installed, namespace: str, name: str) -> None:
    operator.own.kubectl("delete", "rolebinding,role", name, "-n", namespace)
