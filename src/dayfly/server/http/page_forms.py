"""Types of the endpoints for the page (see `forms`)."""

from __future__ import annotations

from dayfly.compile.preview import CompilePreview
from dayfly.server.http.forms import Form, RoleWord, Time

Plan = CompilePreview


class PageLink(Form):
    """A link that signs in on the page once. `path` is relative to the server's address."""

    path: str
    expires_in_seconds: int


class PageCode(Form):
    code: str


class PagePlace(Form):
    """A cluster without a server, by its context in the kubeconfig. An empty namespace means all namespaces."""

    context: str
    namespace: str


class PageSession(Form):
    """The signed-in key. `expiresAt` is missing if the request has a key and no session.

    `place` is given for the page of a cluster without a server.
    """

    org: str
    role: RoleWord
    name: str
    key: str
    expires_at: Time = ""
    place: PagePlace | None = None


class OutputName(Form):
    unit: str
    output: str


class Ended(Form):
    """A sandbox that has ended."""

    uid: str
    name: str
    cluster: str
    routing_key: str
    created_at: Time
    ended_at: Time
