"""Keys and certificates of one cluster, and the client configurations that use them."""

import base64
import json
import subprocess
from pathlib import Path

# The client certificates: RBAC uses common name and group.
USERS = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kwok": "/O=system:masters/CN=kwok",
}
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def make(folder: Path, *, node: str, addresses: list[str], service_address: str) -> None:
    """Write a certificate authority, the servers' certificates and one for each user to the folder."""
    folder.mkdir(mode=0o700)
    _openssl(
        ["req", "-x509", *_NEW_KEY, "-subj", "/CN=testcluster", "-days", "365", "-keyout", "ca.key", "-out", "ca.crt"],
        folder,
    )
    names = [f"IP:{address}" for address in (*addresses, "127.0.0.1")]
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
    _sign(
        folder,
        "apiserver",
        "/O=system:masters/CN=apiserver",
        [*(f"DNS:{name}" for name in services), *names, f"IP:{service_address}"],
    )
    _sign(folder, "kubelet", f"/O=system:nodes/CN=system:node:{node}", [f"DNS:{node}", *names])
    for user, subject in USERS.items():
        _sign(folder, user, subject, [])
    _openssl(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "accounts.key"], folder)
    _openssl(["pkey", "-in", "accounts.key", "-pubout", "-out", "accounts.pub"], folder)


def kubeconfig(folder: Path, user: str, server: str) -> str:
    """Return a client configuration with embedded certificates. JSON is YAML, so any client can read it."""

    def inline(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    certificate = {"client-certificate-data": inline(f"{user}.crt"), "client-key-data": inline(f"{user}.key")}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "testcluster",
                    "cluster": {"server": server, "certificate-authority-data": inline("ca.crt")},
                }
            ],
            "users": [{"name": user, "user": certificate}],
            "contexts": [{"name": "testcluster", "context": {"cluster": "testcluster", "user": user}}],
            "current-context": "testcluster",
        },
        indent=2,
    )


def _sign(folder: Path, name: str, subject: str, alternatives: list[str]) -> None:
    extensions = ["-addext", f"subjectAltName={','.join(alternatives)}"] if alternatives else []
    usage = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=clientAuth,serverAuth"]
    authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-days", "365"]
    files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
    _openssl(["req", "-x509", *_NEW_KEY, "-subj", subject, *authority, *extensions, *usage, *files], folder)


def _openssl(arguments: list[str], folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
