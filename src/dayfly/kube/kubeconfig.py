"""Kubeconfig files: which cluster and which user a context names.

The format is that of k8s.io/client-go, tools/clientcmd/api/v1. Several files are merged as `kubectl` merges them: the
first file that names a cluster, user, context or current context decides. Relative paths count from the file in which
they stand. Credentials are only read here; `auth` obtains them.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class KubeconfigError(Exception):
    """A kubeconfig cannot be used. The text names the file and the entry."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Part of a kubeconfig. Unknown fields are ignored, as by `kubectl`."""


class ClusterEntry(_Entry, frozen=True, kw_only=True):
    """The address of an API server, and the way to it."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class EnvEntry(_Entry, frozen=True, kw_only=True):
    """A variable for a credential plugin."""

    name: str
    value: str


class ExecEntry(_Entry, frozen=True, kw_only=True, rename="camel"):
    """A credential plugin; `credential_plugin` runs it."""

    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[EnvEntry, ...] | None = None
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    provide_cluster_info: bool = False


class ProviderEntry(_Entry, frozen=True, kw_only=True):
    """An authentication provider that is part of the client."""

    name: str
    config: dict[str, str] | None = None


class UserEntry(_Entry, frozen=True, kw_only=True):
    """The credentials of a client."""

    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecEntry | None = None
    auth_provider: ProviderEntry | None = None


class ContextEntry(_Entry, frozen=True, kw_only=True):
    """A cluster, a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class ContextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster, user and namespace of one context."""

    cluster: ClusterEntry
    user: UserEntry
    namespace: str
    cluster_folder: Path
    user_folder: Path

    def authority(self) -> bytes | None:
        """Return the certificates to trust, or None for those of the machine.

        Raises:
            KubeconfigError: the file cannot be read, or the data is not base64.
        """
        cluster = self.cluster
        return _content(cluster.certificate_authority_data, cluster.certificate_authority, self.cluster_folder)

    def certificate(self) -> tuple[bytes, bytes] | None:
        """Return the user's certificate and key, or None.

        Raises:
            KubeconfigError: a file cannot be read, or data is not base64.
        """
        certificate = _content(self.user.client_certificate_data, self.user.client_certificate, self.user_folder)
        key = _content(self.user.client_key_data, self.user.client_key, self.user_folder)
        return (certificate, key or certificate) if certificate is not None else None

    def token(self) -> str:
        """Return the user's token, empty if it has none. The token of a file takes precedence over one in place.

        Raises:
            KubeconfigError: the file cannot be read.
        """
        content = _content("", self.user.token_file, self.user_folder)
        return content.decode(errors="replace").strip() if content is not None else self.user.token


class Kubeconfig:
    """The merged files."""

    def __init__(self, paths: str) -> None:
        """Read the files that `paths` names, separated as $PATH is.

        Raises:
            KubeconfigError: none of them exists, or one of them is not a kubeconfig.
        """
        self._paths = paths
        self._current = ""
        self._sections: dict[str, dict[str, tuple[dict[str, Any], Path]]] = {
            "cluster": {},
            "user": {},
            "context": {},
        }
        files = [Path(each).expanduser() for each in paths.split(os.pathsep) if each]
        present = [each for each in files if each.exists()]
        if not present:
            raise KubeconfigError(f"{paths}: there is no such file")
        for file in present:
            self._add(file)

    def _add(self, file: Path) -> None:
        import yaml  # noqa: PLC0415 - many commands never read a kubeconfig

        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise KubeconfigError(f"{file}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise KubeconfigError(f"{file}: this is no kubeconfig") from None
        if not isinstance(content, dict):
            raise KubeconfigError(f"{file}: this is no kubeconfig")  # perhaps it is being written at this moment
        self._current = self._current or str(content.get("current-context") or "")
        for kind, known in self._sections.items():
            entries = content.get(f"{kind}s") or []
            if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
                raise KubeconfigError(f"{file}: this is no kubeconfig: {kind}s must be a list of mappings")
            for each in entries:
                known.setdefault(str(each.get("name")), (each, file.absolute().parent))

    def choose(self, name: str | None = None) -> ContextChoice:
        """Return what a context names; without a name, what the current context does.

        Raises:
            KubeconfigError: there is no such context, or what it names is missing or malformed.
        """
        name = name or self._current
        if not name:
            raise KubeconfigError(f"{self._paths}: no context is current: name one, or set current-context")
        context, _ = self._entry("context", name, ContextEntry)
        cluster, cluster_folder = self._entry("cluster", context.cluster, ClusterEntry)
        if not cluster.server:
            raise KubeconfigError(f"{self._paths}: cluster {context.cluster!r} has no server")
        user, user_folder = UserEntry(), cluster_folder
        if context.user in self._sections["user"]:
            user, user_folder = self._entry("user", context.user, UserEntry)
        return ContextChoice(
            cluster=cluster,
            user=user,
            namespace=context.namespace or "default",
            cluster_folder=cluster_folder,
            user_folder=user_folder,
        )

    def _entry(self, kind: str, name: str, model: type[T]) -> tuple[T, Path]:
        known = self._sections[kind]
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise KubeconfigError(f"{self._paths}: no {kind} {name!r}; there is {there}")
        found, folder = known[name]
        try:
            return msgspec.convert(_without_null(found.get(kind) or {}), model), folder
        except msgspec.ValidationError as error:
            raise KubeconfigError(f"{self._paths}: this is no kubeconfig: {kind} {name!r}: {error}") from None


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def _content(data: str, file: str, folder: Path) -> bytes | None:
    """Return base64 data decoded, or else the bytes of a file, or else None."""
    if data:
        try:
            return base64.b64decode(data, validate=False)
        except binascii.Error:
            raise KubeconfigError("data of a certificate or key is not base64") from None
    if not file:
        return None
    try:
        return (folder / Path(file).expanduser()).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read {folder / file}: {error.strerror}") from None
