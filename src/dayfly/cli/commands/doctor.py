"""`dayfly doctor`: check what is installed, reachable and permitted."""

from __future__ import annotations

from dayfly.cli import diagnosis, options
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit


@verb("doctor")
@options.backend_options
@options.list_output
def command(context: str | None, namespace: str | None, output: str | None) -> int:
    """Check what is installed, reachable and permitted, and print what to do.

    The exit code is 1 if a check has failed. With --context, a cluster is checked instead of the server.
    """
    if context is None and namespace is not None:
        from dayfly.cli.backends import hosts

        raise hosts.namespace_without_cluster()
    remote = diagnosis.cluster_findings(context, namespace) if context else diagnosis.server_findings()
    found = [*diagnosis.local_findings(), *remote]
    if output:
        show.emit([{"name": each.check, **each._asdict()} for each in found], output)
    else:
        rows = [(each.check, each.state, "; ".join(filter(None, (each.found, each.advice)))) for each in found]
        show.print_table(("CHECK", "STATE", "FOUND"), rows)
    failed = [each.check for each in found if each.state == diagnosis.FAILED]
    if failed:
        raise DayflyError(Exit.FAILED, f"failed: {', '.join(failed)}", "follow the advice above")
    return Exit.OK
