"""The store's schema: one for SQLite and PostgreSQL. `migrations` leads every older database here.

Documents are JSON text, times are unix milliseconds. References between tables refuse what the API refuses, also when
two requests race: nobody deletes a plugin version or a baseline that a sandbox needs.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    false,
)

metadata = MetaData()

clusters = Table(
    "clusters",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    # Whether somebody added it, for an agent to connect; else it is, or was, the server's own.
    Column("agent", Boolean, nullable=False, server_default=false()),
    # When an agent first came with one of its tokens. Before that nobody has heard of what is wished for there.
    Column("connected_at", BigInteger),
    Column("operator_version", String(64), nullable=False, server_default=""),
)

organisations = Table(
    "organisations",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("display_name", String(253), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(253), nullable=False),
    # Of a key with a scope `scoped`, which is no role: a server that knows of no scopes lets it do nothing.
    Column("role", String(16), nullable=False),
    # SHA-256 of the secret, which nobody keeps.
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", String(253), nullable=False),
    Column("expires_at", BigInteger),
    Column("last_used_at", BigInteger),
    # JSON: what a key may do, and to what, that has a scope; else empty.
    Column("scope", Text, nullable=False, server_default=""),
    Index("api_keys_by_org", "org", "created_at"),
)

# Who is signed in on the page: a row begins as a link that works once, and becomes a session. Either secret is kept as
# its SHA-256, and the other one is empty. Whose it is and what it may is asked of its key, each time.
page_sessions = Table(
    "page_sessions",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("key", String(32), nullable=False),
    Column("code", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("page_sessions_by_end", "expires_at"),
)

cluster_tokens = Table(
    "cluster_tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("masked", String(512), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_connected_at", BigInteger),
    Column("last_connected_ip", String(64)),
    ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
    Index("cluster_tokens_by_cluster", "org", "cluster"),
)

# Who did what, chained; and how far each chain goes. Nobody alters an entry: see `migrations.belt`.
audit = Table(
    "audit",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("key", String(32), nullable=False),
    Column("name", String(253), nullable=False),
    Column("program", String(253), nullable=False),
    Column("action", String(32), nullable=False),
    Column("object", String(768), nullable=False),
    Column("spec", String(64), nullable=False),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
)

audit_heads = Table(
    "audit_heads",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
)

plugins = Table(
    "plugins",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("name", String(253), primary_key=True),
    Column("version", String(128), primary_key=True),
    Column("spec", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    # For readers alone: the one part of a published version that may change, and when it last did.
    Column("readme", Text, nullable=False, server_default=""),
    Column("described_at", BigInteger, nullable=False, server_default="0"),
)

workloads = Table(
    "workloads",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("namespace", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("document", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(30), nullable=False),
    Column("routing_key", String(13), nullable=False, unique=True),
    Column("cluster", String(255), nullable=False),
    Column("spec", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # 0: lives without a lease.
    Column("lease_seconds", Integer, nullable=False),
    # Whether its host has sealed the run. A host that does not know it later has lost its ledger.
    Column("taken_over", Boolean, nullable=False),
    # Requests as JSON: who asked for the end, and who for giving up its cleanup.
    Column("stop", Text),
    Column("abandon", Text),
    # Rises with each write: whoever read an older one has read too early.
    Column("revision", Integer, nullable=False, server_default="1"),
    Index("sandboxes_by_name", "org", "name", unique=True),
)

sandbox_plugins = Table(
    "sandbox_plugins",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("resource", String(30), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("plugin", String(253), nullable=False),
    Column("version", String(128), nullable=False),
    ForeignKeyConstraint(["uid"], ["sandboxes.uid"], ondelete="CASCADE"),
    ForeignKeyConstraint(["org", "plugin", "version"], ["plugins.org", "plugins.name", "plugins.version"]),
    Index("sandbox_plugins_by_plugin", "org", "plugin", "version"),
)

sandbox_baselines = Table(
    "sandbox_baselines",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("namespace", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    ForeignKeyConstraint(["uid"], ["sandboxes.uid"], ondelete="CASCADE"),
    ForeignKeyConstraint(["org", "namespace", "name"], ["workloads.org", "workloads.namespace", "workloads.name"]),
    Index("sandbox_baselines_by_workload", "org", "namespace", "name"),
)

route_groups = Table(
    "route_groups",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(30), nullable=False),
    Column("routing_key", String(13), nullable=False, unique=True),
    # Whose host has its run, also of a group of several clusters.
    Column("cluster", String(255), nullable=False),
    Column("spec", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # Since when no sandbox matches; 0 while one does.
    Column("unmatched_since", BigInteger, nullable=False),
    Column("taken_over", Boolean, nullable=False),
    Column("stop", Text),
    Column("abandon", Text),
    # Rises with each write: whoever read an older one has read too early.
    Column("revision", Integer, nullable=False),
    Index("route_groups_by_name", "org", "name", unique=True),
)

ended_route_groups = Table(
    "ended_route_groups",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(30), nullable=False),
    Column("routing_key", String(13), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    # Whether its cleanup was given up; nothing where nobody knew, as older servers did not.
    Column("given_up", Boolean),
    # Whether its wish was for the cluster of its run alone; nothing where an older server has archived it.
    Column("of_one", Boolean),
    Index("ended_route_groups_by_name", "org", "name", "ended_at"),
    Index("ended_route_groups_by_end", "org", "ended_at"),
    Index("ended_route_groups_given_up", "org", "given_up", "ended_at"),
)

# What is left of a sandbox after its end, so that its logs and history still answer to its name for a while.
ended_sandboxes = Table(
    "ended_sandboxes",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(30), nullable=False),
    Column("routing_key", String(13), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("given_up", Boolean),
    Index("ended_sandboxes_by_name", "org", "name", "ended_at"),
    Index("ended_sandboxes_by_end", "org", "ended_at"),
    Index("ended_sandboxes_given_up", "org", "given_up", "ended_at"),
)

# One for each cluster whose operator dials in: its mailbox. `sent` numbers what goes there and `sent_digest` covers it
# all, up to `acked` it was seen; `heard` counts what the host has said in its session, `inbox` numbers it for replicas.
agents = Table(
    "agents",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("cluster", String(255), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    # The UID of the cluster's kube-system, from the first contact on.
    Column("cluster_uid", String(64), nullable=False, default=""),
    Column("session", BigInteger, nullable=False, default=0),
    Column("sent", BigInteger, nullable=False, default=0),
    Column("sent_digest", String(64), nullable=False, default=""),
    Column("acked", BigInteger, nullable=False, default=0),
    Column("acked_digest", String(64), nullable=False, default=""),
    Column("heard", BigInteger, nullable=False, default=0),
    Column("inbox", BigInteger, nullable=False, default=0),
    Column("seen_at", BigInteger, nullable=False, default=0),
    Column("namespace", String(63), nullable=False, default=""),
    Column("version", String(128), nullable=False, default=""),
    # JSON: why nothing is exchanged until somebody has looked; empty if all is well.
    Column("frozen", Text, nullable=False, default=""),
    ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
)

agent_outbox = Table(
    "agent_outbox",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("cluster", String(255), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
)

agent_inbox = Table(
    "agent_inbox",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("cluster", String(255), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("session", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
)

# Of a run in a cluster that dials in: the last order that its host has carried out, by session and number of the
# mailbox, and what it said. See `confirmations` for what it is worth.
confirmed = Table(
    "confirmed",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("session", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("form", String(64), nullable=False),
    ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
    Index("confirmed_by_cluster", "org", "cluster"),
)

# What is worth an event to other programs and was not answered yet; with an empty body what was, or was dropped: it is
# not told again as long as its sandbox lives.
cloud_events = Table(
    "cloud_events",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("uid", String(36), nullable=False),
    # Of the sandbox's wish: when it last changed.
    Column("form", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("cloud_events_by_uid", "uid"),
)
_waits = cloud_events.c.body != ""
# Of this file PostgreSQL is told nothing (see `store`), and to name it would load all that speaks to it.
Index("cloud_events_waiting", cloud_events.c.org, cloud_events.c.at, sqlite_where=_waits)

# What one of several servers does for all of them, and until when it may. Of no organisation: `rows.EVERYWHERE`.
duties = Table(
    "duties",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("holder", String(32), nullable=False),
    Column("until", BigInteger, nullable=False),
)
