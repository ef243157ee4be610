"""What the page's own addresses take and give, as types (see `forms`)."""

from __future__ import annotations

from dayfly.compile.preview import CompilePreview
from dayfly.server.http.forms import Form, RoleWord, Time

Plan = CompilePreview


class PageLink(Form):
    """A way to sign in on the page, once; `path` is below the server's address."""

    path: str
    expires_in_seconds: int


class PageCode(Form):
    code: str


class PagePlace(Form):
    """A plain cluster, by its context in the kubeconfig; no namespace means all of them."""

    context: str
    namespace: str


class PageSession(Form):
    """Who is signed in. `expiresAt` is missing where a key asks, and no session.

    `place` is what is looked at where there is no server, but a plain cluster.
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
    """What is left of a sandbox that has ended."""

    uid: str
    name: str
    cluster: str
    routing_key: str
    created_at: Time
    ended_at: Time
