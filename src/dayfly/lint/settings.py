"""Rules about a script's own settings and about images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dayfly.lint.rules import Spot, rule
from dayfly.spec.errors import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dayfly.lint.shell import Statement
    from dayfly.lint.view import PluginView

_STOPS = re.compile(r"^\s*set\s+(-\w*e|.*-o\s+errexit)", re.MULTILINE)
_HARMLESS = re.compile(
    r"^(set|export|readonly|local|shopt|umask|trap|echo|printf|:|true|exit|fi|done|esac|then|else|do|function)\b|^[A-Za-z_]\w*=[^$`]*$"
    r"|^[}\])]|^[A-Za-z_]\w*=\"?[^`(]*$|;;$|^[\w*|'\"-]+\)$|^\w+\(\)"
)


@rule(
    "DF501",
    "goes-on-after-error",
    "A shell script of several commands goes on after one of them has failed, and the step succeeds if the last one "
    "does.",
    "Write `set -eu` below the first line.",
)
def goes_on_after_error(plugin: PluginView) -> Iterator[Spot]:
    for step in plugin.steps:
        if not step.script.is_shell or re.search(r"(^|\s)-\w*e", step.script.flags) or _STOPS.search(step.script.text):
            continue
        doing = [each for each in step.statements if _may_fail(each)]
        # What the last one says is what the script says, so it alone would not matter.
        last = step.statements[-1] if step.statements else None
        missed = [each for each in doing if each is not last and not each.guarded]
        if missed:
            problem = "goes on if this command fails: the script has no set -e"
            yield Spot(step.script_keys, problem, missed[0].line)


def _may_fail(statement: Statement) -> bool:
    return not _HARMLESS.search(statement.text)


@rule(
    "DF601",
    "image-not-pinned",
    "The runner's image has no tag, or `latest`: a delete may run months later in another image than its create.",
    "Name a version: image: postgres:16, or a digest.",
)
def image_not_pinned(plugin: PluginView) -> Iterator[Spot]:
    image = plugin.spec.runner.image
    if not image or "@" in image:  # a digest, or a variable that is not given here
        return
    last = image.rsplit("/", 1)[-1]
    _, colon, tag = last.partition(":")
    if not colon or tag == "latest":
        said = f"{quote(image)} has no tag" if not colon else f"{quote(image)} is another image tomorrow"
        yield Spot((*plugin.keys, "runner", "image"), said)
