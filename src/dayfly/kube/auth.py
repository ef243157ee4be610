"""Credentials from a kubeconfig (certificates, tokens, exec plugins, OIDC) or from inside a pod.

Kubeconfigs are read by the package `kubernetes`, of which `kubeconfig.py` imports only that part, and only when it is
first asked for: no operator in a pod is. Its exec provider reports a failure to a log alone, so this module looks for
what came of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import ssl
from pathlib import Path
from typing import Any

from dayfly.kube.kubeconfig import library as kubeconfig_library

log = logging.getLogger(__name__)

TOKEN_SECONDS = 60.0
"""How long a loaded token is used before its source is asked again; the sources cache by themselves."""

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class CredentialsError(Exception):
    """There are no usable credentials; the text says where they were looked for and what is wrong."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    """One load's result."""

    server: str
    authorization: str | None
    tls: ssl.SSLContext | None
    server_name: str | None
    proxy: str | None


class Credentials:
    """Who we are to one server, kept fresh. Made by `load`."""

    def __init__(self, kubeconfig: str | None, context: str | None, first: _Loaded) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._now = first
        self._read_at = asyncio.get_running_loop().time()
        self._reading = asyncio.Lock()

    @property
    def server(self) -> str:
        return self._now.server

    @property
    def tls(self) -> ssl.SSLContext | None:
        """None for plain HTTP."""
        return self._now.tls

    @property
    def server_name(self) -> str | None:
        return self._now.server_name

    @property
    def proxy(self) -> str | None:
        return self._now.proxy

    async def header(self) -> str | None:
        """The Authorization header; None if a client certificate speaks for us."""
        if self._now.authorization is not None and self._age() > TOKEN_SECONDS:
            async with self._reading:
                if self._age() > TOKEN_SECONDS:
                    await self._refresh()
        return self._now.authorization

    async def renew(self) -> bool:
        """Ask the source again, now; True if it gave something other than what was refused."""
        refused = self._now
        async with self._reading:
            if self._now is refused:
                await self._refresh()
        return self._now != refused

    def _age(self) -> float:
        return asyncio.get_running_loop().time() - self._read_at

    async def _refresh(self) -> None:
        """Read the source again. If it fails, what we have goes on: the server will say whether that still serves."""
        self._read_at = asyncio.get_running_loop().time()
        try:
            loaded = await _read(self._kubeconfig, self._context)
        except CredentialsError as fault:
            log.warning("credentials could not be refreshed: %s", fault)
            return
        same_tls = loaded.tls is not None and self._now.tls is not None and loaded.authorization is not None
        # Connections are pooled by their TLS context: where a token speaks for us a new context buys nothing.
        self._now = dataclasses.replace(loaded, tls=self._now.tls) if same_tls else loaded


async def load(kubeconfig: Path | None = None, context: str | None = None) -> Credentials:
    """Credentials from a file; without one from $KUBECONFIG, from inside a pod, or from ~/.kube/config.

    Raises:
        CredentialsError: none found, or they do not work (a plugin failed, a file is missing).
    """
    chosen = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or None
    if chosen is None and not (_SERVICE_ACCOUNT / "token").exists():
        chosen = str(Path.home() / ".kube" / "config")
    return Credentials(chosen, context, await _read(chosen, context))


def namespace(context: str, kubeconfig: Path | None = None) -> str:
    """The namespace that a context of the kubeconfig names; `default` if it names none.

    Raises:
        CredentialsError: there is no such context, or no file; the text names those that are there.
    """
    import yaml  # noqa: PLC0415 - what the library below reads with

    config = kubeconfig_library()
    chosen = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not any(map(_exists, chosen.split(os.pathsep))):
        raise CredentialsError(f"{chosen}: there is no such file")
    try:
        merged = config.kube_config.KubeConfigMerger(chosen).config
        contexts = [each.value for each in merged.value["contexts"]]
    except (config.ConfigException, ValueError, OSError) as fault:
        raise CredentialsError(f"{chosen}: {fault}") from fault
    except (yaml.YAMLError, AttributeError, TypeError):
        raise CredentialsError(f"{chosen}: this is no kubeconfig") from None
    found = {each["name"]: each["context"].get("namespace") or "default" for each in contexts}
    if context not in found:
        raise CredentialsError(f"{chosen}: no context {context!r}; there is {', '.join(sorted(found)) or 'none'}")
    return str(found[context])


def _exists(path: str) -> bool:
    return Path(path).expanduser().exists()


async def _read(kubeconfig: str | None, context: str | None) -> _Loaded:
    return _in_pod() if kubeconfig is None else await _from_file(kubeconfig, context)


def _in_pod() -> _Loaded:
    """What every pod finds (kubernetes.io, "Accessing the Kubernetes API from a Pod")."""
    where = "the pod's service account"
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialsError(f"{where}: neither KUBERNETES_SERVICE_HOST nor _PORT may be unset")
    try:
        token = (_SERVICE_ACCOUNT / "token").read_text(encoding="utf-8").strip()
        context = _context(str(_SERVICE_ACCOUNT / "ca.crt"))
    except (ValueError, OSError) as fault:
        raise CredentialsError(f"{where}: {fault}") from fault
    if not token:
        raise CredentialsError(f"{where}: {_SERVICE_ACCOUNT}/token is empty")
    address = f"[{host}]" if ":" in host else host
    return _Loaded(f"https://{address}:{port}", f"Bearer {token}", context, None, None)


async def _from_file(kubeconfig: str, context: str | None) -> _Loaded:
    import yaml  # noqa: PLC0415 - what the library below reads with

    config = kubeconfig_library()
    if not any(map(_exists, kubeconfig.split(os.pathsep))):
        raise CredentialsError(f"{kubeconfig}: there is no such file")
    found: Any = config.kube_config.Configuration()
    try:
        loader = await config.load_kube_config(kubeconfig, context, found, persist_config=False)
        _check_exec(kubeconfig, loader, found)
        authorization = found.api_key.get("BearerToken")
        return _Loaded(found.host, authorization, _tls(found), found.tls_server_name or None, found.proxy)
    except (config.ConfigException, ValueError, OSError) as fault:
        raise CredentialsError(f"{kubeconfig}: {fault}") from fault
    except (yaml.YAMLError, AttributeError, TypeError):  # perhaps somebody is writing it just now
        raise CredentialsError(f"{kubeconfig}: this is no kubeconfig") from None


def _check_exec(where: str, loader: Any, found: Any) -> None:
    """Whether the exec plugin, if there is one, gave a token or a certificate."""
    user = loader._user  # noqa: SLF001 - the loader logs a plugin's failure and goes on without credentials
    if user and "exec" in user and "BearerToken" not in found.api_key and not found.cert_file:
        raise CredentialsError(
            f"{where}: the credential plugin {user['exec']['command']!r} "
            "gave neither token nor certificate; run it by hand"
        )


def _tls(found: Any) -> ssl.SSLContext | None:
    if not found.host.startswith("https"):
        return None
    context = _context(found.ssl_ca_cert)
    if not found.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    return context


def _context(authority: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    # Many clusters' own authorities lack the extensions that RFC 5280 wants and Python 3.13 insists on.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context
