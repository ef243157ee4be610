"""ID tokens of kubeconfigs with `auth-provider: {name: oidc}`: used while they are valid, then refreshed.

A refreshed token stays in memory; the kubeconfig is never written. Source: Kubernetes
documentation, Authenticating, OpenID Connect tokens.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from typing import Any

import aiohttp

from dayfly.kube.kubeconfig import KubeconfigError

# A token that expires this soon is refreshed already.
_EARLY_S = 300
_TIMEOUT = aiohttp.ClientTimeout(total=30)


async def id_token(config: dict[str, str]) -> str:
    """Return a valid ID token.

    Raises:
        KubeconfigError: it has expired, and cannot be refreshed.
    """
    token = config.get("id-token", "")
    if token and not _is_expired_at(token, time.time() + _EARLY_S):
        return token
    if not config.get("refresh-token"):
        raise KubeconfigError("oidc: the id-token has expired, and there is no refresh-token; log in again")
    try:
        return await _refresh(config)
    except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError) as error:
        raise KubeconfigError(f"oidc: the id-token cannot be refreshed: {error!r}; log in again") from None


def _is_expired_at(token: str, at: float) -> bool:
    """Whether a token expires before that Unix time; one without an expiry never does."""
    try:
        claims = token.split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).get("exp")
        return expiry is not None and float(expiry) <= at
    except (ValueError, LookupError, TypeError, AttributeError):
        raise KubeconfigError("oidc: the id-token is not a JSON Web Token") from None


async def _refresh(config: dict[str, str]) -> str:
    data, file = config.get("idp-certificate-authority-data"), config.get("idp-certificate-authority")
    tls = ssl.create_default_context(cafile=file, cadata=base64.b64decode(data).decode() if data else None)
    client = aiohttp.encode_basic_auth(config.get("client-id", ""), config.get("client-secret", ""))
    connector = aiohttp.TCPConnector(ssl=tls)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True, timeout=_TIMEOUT) as session:
        issuer = config.get("idp-issuer-url", "").rstrip("/")
        async with session.get(f"{issuer}/.well-known/openid-configuration") as answer:
            endpoint = (await answer.json(content_type=None))["token_endpoint"]
        form = {"grant_type": "refresh_token", "refresh_token": config["refresh-token"]}
        async with session.post(endpoint, data=form, headers={"Authorization": client}) as answer:
            found: Any = await answer.json(content_type=None)
    return str(found["id_token"])
