"""The schema of SQLite and PostgreSQL databases. `migrations` upgrades older databases to it.

Documents are JSON text; times are Unix milliseconds. Foreign keys enforce the API's rules when requests race: a plugin
version or baseline that a sandbox or pool uses cannot be deleted.
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
    # Whether it was added for an agent to connect; otherwise it is or was a local host of the server.
    Column("agent", Boolean, nullable=False, server_default=false()),
    # When an agent first connected with one of its tokens. Before that no host has received any order.
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
    # For a key with a scope: `scoped`, which is not a role, so an older server without scopes rejects the key.
    Column("role", String(16), nullable=False),
    # SHA-256 of the secret, which is not stored.
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", String(253), nullable=False),
    Column("expires_at", BigInteger),
    Column("last_used_at", BigInteger),
    # The scope and the limits as JSON; empty for a key without them.
    Column("scope", Text, nullable=False, server_default=""),
    # For a key for agents: how long its ended sandboxes lived, which is used from its budget.
    Column("used_seconds", BigInteger, nullable=False, server_default="0"),
    Index("api_keys_by_org", "org", "created_at"),
)

# Sessions of the page. A row starts as a link that can be used once (`code`) and becomes a session (`digest`). One of
# these columns has the SHA-256 of a secret, the other is empty. Each request checks the rights of the session's key.
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

# Sessions of agents. When a session expires, its sandboxes are deleted, and its row after them. `digest` is the SHA-256
# of the secret in the session's key.
agent_sessions = Table(
    "agent_sessions",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("key", String(32), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("agent_sessions_by_key", "org", "key"),
    Index("agent_sessions_by_end", "expires_at"),
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

# The audit log of each organisation, a hash chain whose last entry is in `audit_heads`. PostgreSQL policies forbid
# changes of entries (`migrations.row_level_security`).
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
    # The only part of a published version that can change, and when it last did. Hosts do not use it.
    Column("readme", Text, nullable=False, server_default=""),
    Column("readme_updated_at", BigInteger, nullable=False, server_default="0"),
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
    # 0: no lease.
    Column("lease_seconds", Integer, nullable=False),
    # Whether its host has sealed the run. A host that does not know the run later has lost its ledger.
    Column("sealed", Boolean, nullable=False),
    # The requests to delete it and to abandon its cleanup, as JSON.
    Column("stop", Text),
    Column("abandon", Text),
    # Increased by each write, which detects a concurrent change.
    Column("revision", Integer, nullable=False, server_default="1"),
    # Name and ID of the key that created it; empty if an older server created it.
    Column("created_by", String(253), nullable=False, server_default=""),
    Column("creator_key", String(32), nullable=False, server_default=""),
    # The session of an agent, and the seconds that are reserved for it from the budget of the agent's key.
    Column("session", String(16), nullable=False, server_default=""),
    Column("reserved_seconds", BigInteger, nullable=False, server_default="0"),
    Index("sandboxes_by_creator", "org", "creator_key", "session"),
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
    # The cluster with its run, also if the group has sandboxes of several clusters.
    Column("cluster", String(255), nullable=False),
    Column("spec", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    # Since when no sandbox matches; 0 while a sandbox matches.
    Column("unmatched_since", BigInteger, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("stop", Text),
    Column("abandon", Text),
    # Increased by each write, which detects a concurrent change.
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
    # Whether its cleanup was abandoned; NULL if an older server archived it.
    Column("abandoned", Boolean),
    # Whether the group was restricted to the cluster of its run; NULL if an older server archived it.
    Column("single_cluster", Boolean),
    Index("ended_route_groups_by_name", "org", "name", "ended_at"),
    Index("ended_route_groups_by_end", "org", "ended_at"),
    Index("ended_route_groups_abandoned", "org", "abandoned", "ended_at"),
)

resource_pools = Table(
    "resource_pools",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(63), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("spec", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    # Also increased when the pool follows a newer version of its plugin.
    Column("updated_at", BigInteger, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("stop", Text),
    Column("abandon", Text),
    # Increased by each write, which detects a concurrent change.
    Column("revision", Integer, nullable=False),
    Index("resource_pools_by_name", "org", "name", unique=True),
)

# The version of its plugin that a pool has now, also if its spec names none.
pool_plugins = Table(
    "pool_plugins",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("plugin", String(253), nullable=False),
    Column("version", String(128), nullable=False),
    ForeignKeyConstraint(["uid"], ["resource_pools.uid"], ondelete="CASCADE"),
    ForeignKeyConstraint(["org", "plugin", "version"], ["plugins.org", "plugins.name", "plugins.version"]),
    Index("pool_plugins_by_plugin", "org", "plugin", "version"),
)

ended_resource_pools = Table(
    "ended_resource_pools",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(63), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    # Whether its cleanup was abandoned.
    Column("abandoned", Boolean),
    Index("ended_resource_pools_by_name", "org", "name", "ended_at"),
)

# Tombstones: logs and history of an ended sandbox stay available under its name for a week.
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
    Column("abandoned", Boolean),
    # As in `sandboxes`.
    Column("creator_key", String(32), nullable=False, server_default=""),
    Column("session", String(16), nullable=False, server_default=""),
    # The request that ended it (JSON), which is the request to abandon it if there was one; NULL if unknown.
    Column("stop", Text),
    # Whether a create step is known to have failed; NULL if an older server archived it.
    Column("failed", Boolean),
    Index("ended_sandboxes_by_name", "org", "name", "ended_at"),
    Index("ended_sandboxes_by_end", "org", "ended_at"),
    Index("ended_sandboxes_abandoned", "org", "abandoned", "ended_at"),
)

# How long an ended sandbox lived, for 400 days. `labels` is JSON.
sandbox_usage = Table(
    "sandbox_usage",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("name", String(30), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("created_by", String(253), nullable=False),
    Column("labels", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Index("sandbox_usage_by_end", "org", "ended_at"),
)

# The resources of ended sandboxes by resource ID, for 400 days. `sandbox_usage` has their sandboxes.
ended_resources = Table(
    "ended_resources",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("uid", String(36), nullable=False),
    Column("plugin", String(253), nullable=False),
    Column("version", String(128), nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Index("ended_resources_by_end", "org", "ended_at"),
)

# Leak checks as their hosts have last reported them (`records.leak_records`). `report` and `leaks` are JSON.
leak_checks = Table(
    "leak_checks",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("cluster", String(255), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("report", Text, nullable=False),
    Column("leaks", Text, nullable=False),
    Column("leaks_since", BigInteger, nullable=False),
    # The number of its deletions in the audit log, and the host's number of the last one.
    Column("deletions", BigInteger, nullable=False),
    Column("last_deletion", BigInteger, nullable=False),
    # The keys that applied the check and its last plan; empty if that was not at this server.
    Column("applied_key", String(32), nullable=False),
    Column("applied_name", String(253), nullable=False),
    Column("plan", String(64), nullable=False),
    Column("plan_key", String(32), nullable=False),
    Column("plan_name", String(253), nullable=False),
)

# The mailboxes of clusters whose agent connects to the server. `sent` is the number of the last message to the host and
# `sent_digest` covers all of them; `acknowledged` is the last that the host has confirmed. `received` counts the
# messages of the host in its session, and `inbox` numbers them for replicas.
# The key of each organisation, from which its clusters' keys for resource tokens are derived, in hexadecimal form.
organisation_keys = Table(
    "organisation_keys",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("key", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("cluster", String(255), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    # The UID of the cluster's namespace kube-system, from the first connection on.
    Column("cluster_uid", String(64), nullable=False, default=""),
    Column("session", BigInteger, nullable=False, default=0),
    Column("sent", BigInteger, nullable=False, default=0),
    Column("sent_digest", String(64), nullable=False, default=""),
    Column("acknowledged", BigInteger, nullable=False, default=0),
    Column("acknowledged_digest", String(64), nullable=False, default=""),
    Column("received", BigInteger, nullable=False, default=0),
    Column("inbox", BigInteger, nullable=False, default=0),
    Column("seen_at", BigInteger, nullable=False, default=0),
    Column("namespace", String(63), nullable=False, default=""),
    Column("version", String(128), nullable=False, default=""),
    # JSON: why no messages are exchanged until an administrator has confirmed it; empty if they are exchanged.
    Column("frozen", Text, nullable=False, default=""),
    # JSON: the names of the cluster in resource tokens by earlier keys, as its operator announces them.
    Column("token_hosts", Text, nullable=False, server_default=""),
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

# The last confirmed order of each run in a cluster with an agent: session and number in the mailbox, and the order's
# fingerprint. `records.confirmations` explains when a confirmation counts.
order_confirmations = Table(
    "order_confirmations",
    metadata,
    Column("uid", String(36), primary_key=True),
    Column("org", String(253), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("session", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    ForeignKeyConstraint(["org", "cluster"], ["clusters.org", "clusters.name"], ondelete="CASCADE"),
    Index("order_confirmations_by_cluster", "org", "cluster"),
)

# CloudEvents that the receiver has not accepted yet. A row with an empty body was delivered or dropped. It stays as
# long as its sandbox exists, so that the event is not sent again.
cloud_events = Table(
    "cloud_events",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("uid", String(36), nullable=False),
    # When the sandbox's spec last changed.
    Column("spec_changed_at", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("cloud_events_by_uid", "uid"),
)
_pending = cloud_events.c.body != ""
# Only for SQLite: PostgreSQL gets its indexes from migrations, and `postgresql_where` would load that dialect.
Index("cloud_events_pending", cloud_events.c.org, cloud_events.c.at, sqlite_where=_pending)

# Leases of servers: which of them does a task for all, and until when. The organisation is `rows.ALL_ORGS`.
leases = Table(
    "leases",
    metadata,
    Column("org", String(253), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("holder", String(32), nullable=False),
    Column("until", BigInteger, nullable=False),
)
