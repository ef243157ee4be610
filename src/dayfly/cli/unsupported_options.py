"""Errors for `--server` and `--context` on verbs without these options, with the command to type instead.

A test checks that each verb has the option or an entry here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

CONTEXT, SERVER = "--context", "--server"
_OPTIONS = {CONTEXT: CONTEXT, SERVER: SERVER, "-n": CONTEXT, "--namespace": CONTEXT}

_FILES_ONLY = "only reads files; remove {option}"
_HELP = "only prints text; remove {option}"
_KUBECTL = "is for a server; in a cluster, type: "
_APPLY = f"{_KUBECTL}dayfly manifest -f FILE | kubectl apply --context NAME -f -"
_ACCOUNTS = "is for a server; a cluster has its own users, rights and audit log: ask its administrator"
_AGENTS = "is for a server, which has many clusters; read a single cluster with: dayfly get --context NAME"
_OPERATOR = (
    "is for the server on this machine; a cluster runs the Deployment dayfly-operator: see docs/guides/cluster.md"
)
_SHARED = (
    "is for the server on this machine; a shared server is stopped by its administrator: see docs/guides/server.md"
)
_DATABASE = "works on a database; name it with --database URL and remove {option}"

_HOME_OR_CLUSTER = "runs on this machine or in a cluster, not on another server; type: --context NAME"
_STATES = "reads states where they are stored, in the server's clusters; type: --context NAME"
_LEASED = "is for a server, which deletes the sandbox of a killed command; in a cluster, apply a sandbox, then type: "

MESSAGES: dict[str, dict[str, str]] = {
    "up": {CONTEXT: _OPERATOR, SERVER: _SHARED},
    "down": {CONTEXT: _OPERATOR, SERVER: _SHARED},
    "bug-report": {CONTEXT: "is for a server; for a cluster, send the operator's log: see docs/guides/troubleshoot.md"},
    "version": {CONTEXT: f"{_KUBECTL}kubectl -n dayfly-system get deployments -o wide --context NAME"},
    "status": {CONTEXT: f"{_KUBECTL}dayfly get --context NAME"},
    **{verb: {CONTEXT: _APPLY} for verb in ("apply", "sandbox apply", "routegroup apply", "plugin apply")},
    "plugin get": {CONTEXT: f"{_KUBECTL}kubectl get resourceplugins NAME.VERSION -o yaml --context NAME"},
    "plugin list": {CONTEXT: f"{_KUBECTL}kubectl get resourceplugins --context NAME"},
    "plugin diff": {CONTEXT: f"{_KUBECTL}dayfly manifest -f FILE | kubectl diff --context NAME -f -"},
    "plugin delete": {CONTEXT: f"{_KUBECTL}kubectl delete resourceplugins NAME.VERSION --context NAME"},
    "history": {CONTEXT: f"{_KUBECTL}kubectl events --for sandbox.dayfly.dev/NAME --context NAME"},
    "mcp": {CONTEXT: "is for a server, whose keys have the limits of agents"},
    "open": {CONTEXT: "is for a server; for a cluster, type: dayfly page --context NAME"},
    "plugin test": {SERVER: _HOME_OR_CLUSTER},
    "state list": {SERVER: _STATES},
    "state show": {SERVER: _STATES},
    "with": {CONTEXT: f"{_LEASED}dayfly env NAME --context NAME"},
    "login": {CONTEXT: _ACCOUNTS, SERVER: "takes an address and stores it under a name: dayfly login URL --name NAME"},
    **{verb: {CONTEXT: _ACCOUNTS} for verb in ("key create", "key list", "key delete", "audit", "usage")},
    **{verb: {CONTEXT: _AGENTS} for verb in ("cluster add", "cluster list", "cluster remove", "cluster thaw")},
    **{f"cluster token {verb}": {CONTEXT: _AGENTS} for verb in ("create", "list", "delete")},
    "operator": {SERVER: "connects to its server with --server-url URL"},
    **{verb: {CONTEXT: _FILES_ONLY, SERVER: _FILES_ONLY} for verb in ("manifest", "explain", "schema", "completion")},
    "help": {CONTEXT: _HELP, SERVER: _HELP},
    **{f"plugin {verb}": {CONTEXT: _FILES_ONLY, SERVER: _FILES_ONLY} for verb in ("init", "lint", "plan")},
    **{
        verb: {CONTEXT: _DATABASE, SERVER: _DATABASE}
        for verb in ("server", "server init", "server admin-key", "server migrate")
    },
}
"""By verb and option: the error message after "dayfly VERB"."""


def message(option: str, context: click.Context | None) -> str:
    """Return why a verb does not have an option, and what to type instead; empty for other options."""
    path = []
    while context is not None and context.parent is not None:
        path.append(context.command.name or "")
        context = context.parent
    verb = " ".join(reversed(path))
    text = MESSAGES.get(verb, {}).get(_OPTIONS.get(option, ""), "")
    return f"dayfly {verb} {text.format(option=option)}" if text else ""
