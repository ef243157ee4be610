"""What to type where a verb does not ask a server or a cluster: an unknown `--server` or `--context` is said in words.

A test walks all verbs: each has the option, or words here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

CONTEXT, SERVER = "--context", "--server"
_OPTIONS = {CONTEXT: CONTEXT, SERVER: SERVER, "-n": CONTEXT, "--namespace": CONTEXT}

_NOBODY = "reads files only and asks nobody; leave {option} out"
_KUBECTL = "is for a server; in a cluster, type: "
_APPLY = f"{_KUBECTL}dayfly manifest -f FILE | kubectl apply --context NAME -f -"
_ACCOUNTS = "is for a server; a cluster has users, rights and an audit log of its own: see its administrator"
_AGENTS = "is for a server, which has many clusters; ask one itself with: dayfly get --context NAME"
_OPERATOR = "is for the server of a home; a cluster's operator is the Deployment dayfly-operator: see docs/cluster.md"
_MANY = "is for the server of a home; who runs another stops it: see docs/server.md"
_DATABASE = "works on a database, which it is given with --database URL; leave {option} out"

_HOME_OR_CLUSTER = "plays on this machine or in a cluster, not at a server of others; type: --context NAME"
_STATES = "asks where the states are: in the server's clusters; type: --context NAME"
_LEASED = "is for a server, which ends what a killed command had; in a cluster, apply a sandbox, then type: "

WORDS: dict[str, dict[str, str]] = {
    "up": {CONTEXT: _OPERATOR, SERVER: _MANY},
    "down": {CONTEXT: _OPERATOR, SERVER: _MANY},
    "status": {CONTEXT: f"{_KUBECTL}dayfly get --context NAME"},
    **{verb: {CONTEXT: _APPLY} for verb in ("apply", "sandbox apply", "routegroup apply", "plugin apply")},
    "plugin get": {CONTEXT: f"{_KUBECTL}kubectl get resourceplugins NAME.VERSION -o yaml --context NAME"},
    "plugin list": {CONTEXT: f"{_KUBECTL}kubectl get resourceplugins --context NAME"},
    "plugin delete": {CONTEXT: f"{_KUBECTL}kubectl delete resourceplugins NAME.VERSION --context NAME"},
    "plugin test": {SERVER: _HOME_OR_CLUSTER},
    "state list": {SERVER: _STATES},
    "state show": {SERVER: _STATES},
    "with": {CONTEXT: f"{_LEASED}dayfly env NAME --context NAME"},
    "login": {CONTEXT: _ACCOUNTS, SERVER: "takes an address, and makes the name: dayfly login URL --name NAME"},
    **{verb: {CONTEXT: _ACCOUNTS} for verb in ("key create", "key list", "key delete", "audit")},
    **{verb: {CONTEXT: _AGENTS} for verb in ("cluster add", "cluster list", "cluster remove", "cluster thaw")},
    **{f"cluster token {verb}": {CONTEXT: _AGENTS} for verb in ("create", "list", "delete")},
    "operator": {SERVER: "is connected to its server by --server-url URL"},
    **{verb: {CONTEXT: _NOBODY, SERVER: _NOBODY} for verb in ("manifest", "explain", "schema", "completion")},
    **{f"plugin {verb}": {CONTEXT: _NOBODY, SERVER: _NOBODY} for verb in ("init", "lint")},
    **{verb: {CONTEXT: _DATABASE, SERVER: _DATABASE} for verb in ("server", "server init", "server migrate")},
}
"""By verb and option, what follows "dayfly VERB"."""


def words(option: str, context: click.Context | None) -> str:
    """Why that verb has no such option, and what to type; empty for an option that leads to no place."""
    path = []
    while context is not None and context.parent is not None:
        path.append(context.command.name or "")
        context = context.parent
    verb = " ".join(reversed(path))
    told = WORDS.get(verb, {}).get(_OPTIONS.get(option, ""), "")
    return f"dayfly {verb} {told.format(option=option)}" if told else ""
