"""What a wish means: a sandbox and the plugins it names become the documents by which a host works.

`compile` makes one document for each resource and one for the sandbox's own hooks, and one kept unit for each fork and,
where the host routes requests by their key, for each route and preview address.
A lifecycle hook becomes one document for each of its targets (`compile_hook`), a route group one (`compile_group`).
References stay symbols; whatever leads nowhere, comes too late or goes round in a circle is refused here with its
place, before anything has an effect. `check_plugin` refuses what one plugin alone can get wrong, when it is published;
`preview` and `preview_hook` say what would run, in which order, with which values.

Pure: no clock, files, network or chance; uids, keys and plugins are handed in. It may not know how a unit is carried
out, nor what a ledger holds: it imports `spec` alone. Called by `control`, `cli` and the operator's front
for wishes applied with kubectl; never by whoever executes.
"""

from dayfly.compile.compiler import Compiled, check_plugin, check_steps, compile  # noqa: A004  -- the field's word for it
from dayfly.compile.lifecycle_hook import check_hook, compile_hook, hook_doubts
from dayfly.compile.preview import CompilePreview, preview, preview_hook
from dayfly.compile.resources import missing
from dayfly.compile.route_group import check_group, compile_group, group_previews

__all__ = [
    "CompilePreview",
    "Compiled",
    "check_group",
    "check_hook",
    "check_plugin",
    "check_steps",
    "compile",
    "compile_group",
    "compile_hook",
    "group_previews",
    "hook_doubts",
    "missing",
    "preview",
    "preview_hook",
]
