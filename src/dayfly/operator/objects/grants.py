"""Messages about missing permissions of a namespace's ServiceAccount, with the commands that grant them."""

import re

from dayfly.execute.object.run import ACCOUNT
from dayfly.kube import errors
from dayfly.plan.reasons import Reason
from dayfly.plan.world import UnitRefusal

VERBS = "get,create,patch,delete"


# The API server's message: verb, resource and API group.
_MISSING = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')


def grant_commands(namespace: str, resource: str, verbs: str = VERBS, *, ending: bool = False) -> str:
    """Return the commands for an administrator; the account itself need not exist.

    In a namespace that is being deleted (`ending`) nothing can be created, so the permission must come from a
    ClusterRole.
    """
    role = f"{ACCOUNT}-{resource}"
    if ending:
        whole = f"{role}-{namespace}"
        return (
            f"kubectl create clusterrole {whole} --verb={verbs} --resource={resource} && "
            f"kubectl create clusterrolebinding {whole} --clusterrole={whole} --serviceaccount={namespace}:{ACCOUNT}"
        )
    return (
        f"kubectl create role {role} --namespace {namespace} --verb={verbs} --resource={resource} && "
        f"kubectl create rolebinding {role} --namespace {namespace} --role={role} "
        f"--serviceaccount={namespace}:{ACCOUNT}"
    )


def explain_refusal(error: errors.Refused, namespace: str, now: int, *, ending: bool = False) -> UnitRefusal:
    """Return the objection for a refused request at `now` (unix milliseconds)."""
    missing = _MISSING.search(error.message)
    if missing is None or not isinstance(error, errors.Forbidden) or not error.is_not_granted:
        return UnitRefusal(reason=error.reason or Reason.REFUSED, message=error.message, since=now)
    verb, plural, group = missing.groups()
    if verb == "impersonate":
        message = f"the operator may not act as {ACCOUNT} of namespace {namespace}: apply the install manifest again"
        return UnitRefusal(reason=Reason.OBJECTS_NOT_GRANTED, message=message, since=now)
    resource = f"{plural}.{group}" if group else plural
    message = f"the account {ACCOUNT} of namespace {namespace} may not {verb} {resource}; its administrator can run: "
    if ending:
        message = (
            f"namespace {namespace} is being deleted, and the permissions of its account {ACCOUNT} were deleted before "
            "the objects: the cluster's administrator can run this, and revoke it afterwards: "
        )
    return UnitRefusal(
        reason=Reason.OBJECTS_NOT_GRANTED,
        message=message + grant_commands(namespace, resource, ending=ending),
        since=now,
    )


def explain_secret_refusal(namespace: str, name: str, now: int) -> UnitRefusal:
    """Return the objection for a Secret with an output that the account may not read."""
    role = f"{ACCOUNT}-secret-{name}"
    message = (
        f"the account {ACCOUNT} of namespace {namespace} may not read Secret {name}; its administrator can run: "
        f"kubectl create role {role} --namespace {namespace} --verb=get --resource=secrets --resource-name={name} && "
        f"kubectl create rolebinding {role} --namespace {namespace} --role={role} "
        f"--serviceaccount={namespace}:{ACCOUNT}"
    )
    return UnitRefusal(reason=Reason.OBJECTS_NOT_GRANTED, message=message, since=now)
