"""Credentials from a program: the exec plugins of kubeconfigs.

The protocol is `client.authentication.k8s.io`, versions v1 and v1beta1. Source:
Kubernetes documentation, Authenticating, client-go credential plugins.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.kube.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from dayfly.kube.kubeconfig import ContextChoice, ExecEntry

_KINDS = ("v1", "v1beta1")


class ObtainedCredentials(NamedTuple):
    """A token, or a certificate with its key in PEM, or both."""

    token: str
    certificate: tuple[bytes, bytes] | None


async def obtain(plugin: ExecEntry, chosen: ContextChoice) -> ObtainedCredentials:
    """Run a credential plugin.

    Raises:
        KubeconfigError: it cannot be run, it failed, or its output has neither token nor certificate.
    """
    name = f"the credential plugin {plugin.command!r}"
    if plugin.api_version not in (f"client.authentication.k8s.io/{each}" for each in _KINDS):
        raise KubeconfigError(f"{name}: apiVersion {plugin.api_version} is not supported; v1 and v1beta1 are")
    interactive = _is_interactive(plugin, name)
    command = plugin.command
    if os.sep in command:
        command = str(chosen.user_folder / command)
    try:
        process = await asyncio.create_subprocess_exec(
            command,
            *(plugin.args or ()),
            env=_environment(plugin, chosen, interactive=interactive),
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if interactive else PIPE,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint.strip()}" if plugin.install_hint else ""
        raise KubeconfigError(f"{name} cannot be run: {error.strerror}{hint}") from None
    output, errors = await process.communicate()
    if process.returncode:
        said = f": {errors.decode(errors='replace').strip()}" if errors else ""
        raise KubeconfigError(f"{name} ended with exit code {process.returncode}{said}")
    return _parse_output(output, plugin, name)


def _is_interactive(plugin: ExecEntry, name: str) -> bool:
    """Whether the plugin may use the terminal."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not terminal:
        raise KubeconfigError(f"{name} needs a terminal")
    return terminal and plugin.interactive_mode != "Never"


def _environment(plugin: ExecEntry, chosen: ContextChoice, *, interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        cluster, authority = chosen.cluster, chosen.authority()
        spec["cluster"] = {
            "server": cluster.server,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            **({"certificate-authority-data": base64.b64encode(authority).decode()} if authority else {}),
            **({"tls-server-name": cluster.tls_server_name} if cluster.tls_server_name else {}),
            **({"proxy-url": cluster.proxy_url} if cluster.proxy_url else {}),
        }
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return {
        **os.environ,
        **{each.name: each.value for each in plugin.env or ()},
        "KUBERNETES_EXEC_INFO": json.dumps(info),
    }


def _parse_output(output: bytes, plugin: ExecEntry, name: str) -> ObtainedCredentials:
    try:
        found = json.loads(output)
        version, status = found["apiVersion"], found["status"]
        token = str(status.get("token") or "")
        certificate, key = (status.get(f"client{each}Data") or "" for each in ("Certificate", "Key"))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise KubeconfigError(f"{name} printed no ExecCredential; run it by hand") from None
    if version != plugin.api_version:
        raise KubeconfigError(f"{name} answers in {version}, and the kubeconfig names {plugin.api_version}")
    if not token and not (certificate and key):
        raise KubeconfigError(f"{name} gave neither token nor certificate; run it by hand")
    return ObtainedCredentials(token, (certificate.encode(), key.encode()) if certificate and key else None)
