"""What is said when the account of a namespace lacks a right, with the very line that gives it."""

import re

from dayfly.execute.object.run import ACCOUNT
from dayfly.kube import errors
from dayfly.plan.reasons import Reason
from dayfly.plan.world import Objection

VERBS = "get,create,patch,delete"


# The authorizer's own words: what the account may not do, and with what.
_WANTED = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')


def line(namespace: str, resource: str, verbs: str = VERBS, *, ending: bool = False) -> str:
    """What an administrator types; the account itself need not exist.

    In a namespace that is `ending` nothing can be made any more, so there the right is given from outside of it.
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


def objection(error: errors.Refused, namespace: str, now: int, *, ending: bool = False) -> Objection:
    """Why the server has not let us, at the moment `now` (unix milliseconds)."""
    wanted = _WANTED.search(error.message)
    if wanted is None or not isinstance(error, errors.Forbidden) or not error.not_granted:
        return Objection(reason=error.reason or Reason.REFUSED, message=error.message, since=now)
    verb, plural, group = wanted.groups()
    if verb == "impersonate":
        message = f"the operator may not act as {ACCOUNT} of namespace {namespace}: apply the install manifest again"
        return Objection(reason=Reason.OBJECTS_NOT_GRANTED, message=message, since=now)
    resource = f"{plural}.{group}" if group else plural
    message = f"the account {ACCOUNT} of namespace {namespace} may not {verb} {resource}; its administrator can type: "
    if ending:
        message = (
            f"namespace {namespace} is being deleted, and the rights of its account {ACCOUNT} have gone before the "
        )
        message += "objects: the cluster's administrator can type, and take it back afterwards: "
    return Objection(
        reason=Reason.OBJECTS_NOT_GRANTED, message=message + line(namespace, resource, ending=ending), since=now
    )


def secrets(namespace: str, name: str, now: int) -> Objection:
    """Why an output cannot be read that lies in a Secret."""
    role = f"{ACCOUNT}-secret-{name}"
    message = (
        f"the account {ACCOUNT} of namespace {namespace} may not read Secret {name}; its administrator can type: "
        f"kubectl create role {role} --namespace {namespace} --verb=get --resource=secrets --resource-name={name} && "
        f"kubectl create rolebinding {role} --namespace {namespace} --role={role} "
        f"--serviceaccount={namespace}:{ACCOUNT}"
    )
    return Objection(reason=Reason.OBJECTS_NOT_GRANTED, message=message, since=now)
