"""Compile a sandbox and its plugins into the sealed documents that hosts execute.

`compile` returns one document for each resource and one for the sandbox's own hooks; `compile_hook` and
`compile_group` do the same for a lifecycle hook's target and a route group. References that lead nowhere, come too
late or form a cycle are refused with their position. `preview` describes what would run, and in which order. The
package is pure and imports only `spec`; `server`, `cli` and the operator's kubectl controllers call it.
"""

from dayfly.compile.compiler import Compiled, check_plugin, check_steps, compile  # noqa: A004  -- the field's word for it
from dayfly.compile.leak_check import CompiledLeakCheck, compile_leak_check
from dayfly.compile.lifecycle_hook import check_hook, compile_hook, hook_warnings
from dayfly.compile.parents import add_parents, check_chain
from dayfly.compile.pools import CompiledPool, check_duplicate
from dayfly.compile.preview import CompilePreview, preview, preview_hook, preview_pool
from dayfly.compile.resource_pool import compile_pool, pool_plugin
from dayfly.compile.resources import required_plugins, select_plugin
from dayfly.compile.route_group import check_group, compile_group, group_previews

__all__ = [
    "CompilePreview",
    "Compiled",
    "CompiledLeakCheck",
    "CompiledPool",
    "add_parents",
    "check_chain",
    "check_duplicate",
    "check_group",
    "check_hook",
    "check_plugin",
    "check_steps",
    "compile",
    "compile_group",
    "compile_hook",
    "compile_leak_check",
    "compile_pool",
    "group_previews",
    "hook_warnings",
    "pool_plugin",
    "preview",
    "preview_hook",
    "preview_pool",
    "required_plugins",
    "select_plugin",
]
