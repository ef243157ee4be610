"""Documents from files: parsed, filled in and checked before any request is sent to a server."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.compile import check_group, check_hook, check_plugin
from dayfly.spec import documents, readme
from dayfly.spec.errors import Faults, SpecError, parse_path, quote
from dayfly.spec.leak_check import LeakCheck
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.parsing import template, text
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.route_group import RouteGroup
from dayfly.spec.shared_parent import MAX_LEVELS
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dayfly.client.errors import RefusedError
    from dayfly.spec.documents import TypedDocument
    from dayfly.spec.parsing.text import ParsedDocument

STANDARD_INPUT = "-"
ENDINGS = (".yaml", ".yml", ".json")
_SINGLE_PLUGIN_FILES = tuple(f"plugin{ending}" for ending in ENDINGS)
_READ_ADVICE = "give -f a file or folder that can be read"


class LoadedDocument(NamedTuple):
    """A document of a file: its typed content and its source."""

    content: TypedDocument
    document: ParsedDocument

    @property
    def kind(self) -> str:
        """`plugin`, `baseline`, `pool`, `leak check`, `sandbox`, `route group` or `lifecycle hook`."""
        if isinstance(self.content, Plugin):
            return "plugin"
        if isinstance(self.content, LifecycleHook):
            return "lifecycle hook"
        if isinstance(self.content, RouteGroup):
            return "route group"
        if isinstance(self.content, ResourcePool):
            return "pool"
        if isinstance(self.content, LeakCheck):
            return "leak check"
        return "baseline" if isinstance(self.content, Workload) else "sandbox"

    @property
    def subject(self) -> str:
        """Return the subject for commands on a sandbox, route group or pool; empty for other kinds."""
        subjects = {
            "sandbox": self.name,
            "route group": subject.group_subject(self.name),
            "pool": subject.pool_subject(self.name),
        }
        return subjects.get(self.kind, "")

    @property
    def apply_command(self) -> str:
        """Return the command that applies the document."""
        program = "kubectl" if isinstance(self.content, LifecycleHook) else "dayfly"
        return f"{program} apply -f {self.document.file}"

    @property
    def name(self) -> str:
        """Return the name within the kind."""
        if isinstance(self.content, Plugin):
            return self.content.wire_name
        return (
            f"{self.content.namespace}/{self.content.name}" if isinstance(self.content, Workload) else self.content.name
        )


def load(
    files: Iterable[str], sets: Iterable[str], warn: Callable[[str], None] = lambda _: None
) -> list[LoadedDocument]:
    """Return all documents of files, sorted by kind: plugins, baselines, pools, checks, sandboxes, groups, hooks.

    A plugin follows its parent.

    Args:
        files: Files, folders, or `-` for standard input.
        sets: Variables as `NAME=VALUE`.
        warn: Called for each variable that no file uses.

    Raises:
        SpecError: some documents are invalid; the error has all problems with their places.
        DayflyError: a file cannot be read, there is no document, or one object is defined twice.
    """
    variables = template.parse_sets(sets)
    faults, found = Faults(), []
    parsed = parse(files)
    for name in template.unused_variables(variables, parsed):
        warn(f"warning: --set {name} has no effect: no file contains @{{{name}}}")
    for document in parsed:
        with faults:
            filled = template.expand(document, variables, reader(document.file))
            wished = LoadedDocument(_with_readme(documents.load(filled), document.file), filled)
            if isinstance(wished.content, Plugin):
                check_plugin(wished.content, source=wished.document)
            elif isinstance(wished.content, LifecycleHook):
                check_hook(wished.content, source=wished.document)
            elif isinstance(wished.content, RouteGroup):
                check_group(wished.content, source=wished.document)
            found.append(wished)
    faults.settle()
    order = ("plugin", "baseline", "pool", "leak check", "sandbox", "route group", "lifecycle hook")
    contents = [each.content for each in found]
    plugins = {(each.name, each.version): each for each in contents if isinstance(each, Plugin)}
    found.sort(key=lambda wished: (order.index(wished.kind), _level(wished.content, plugins)))
    _refuse_duplicates(found)
    return found


def _level(content: object, plugins: Mapping[tuple[str, str], Plugin]) -> int:
    """Return the number of parents above a plugin that are among these plugins."""
    level = 0
    above = content
    while isinstance(above, Plugin) and above.spec.parent is not None and level < MAX_LEVELS:
        above = plugins.get(above.spec.parent.version)
        level += above is not None
    return level


def load_one(
    files: Iterable[str], sets: Iterable[str], kind: str, warn: Callable[[str], None] = lambda _: None
) -> LoadedDocument:
    """Return the only document of some files, which must be of one kind. All else is as in `load`.

    Raises:
        SpecError: as `load`, or the document is of another kind.
        DayflyError: as `load`, or there are several documents.
    """
    found = load(files, sets, warn)
    for wished in found:
        if wished.kind != kind:
            raise wished.document.error(f"is a {wished.kind}, not a {kind}; apply it with: {wished.apply_command}")
    if len(found) != 1:
        message = f"there are {len(found)} {kind}s, and this command accepts one"
        raise DayflyError(Exit.USAGE, message, "apply several with: dayfly apply -f FILE")
    return found[0]


def read_names(files: Iterable[str], sets: Iterable[str], kind: documents.Kind) -> list[str]:
    """Return the names in files of one kind. Only the variables in the names must be set."""
    variables = template.parse_sets(sets)
    found = []
    for document in parse(files):
        if (is_ := documents.classify(document)) != kind:
            raise document.error(f"is a {is_}, not a {kind}")
        bare = documents.only_name(document)
        found.append(documents.name_of(template.expand(bare, variables, reader(document.file))))
    return found


def parse(files: Iterable[str]) -> list[ParsedDocument]:
    """Return the documents of files as they are written."""
    faults, files = Faults(), tuple(files)
    found: list[ParsedDocument] = []
    for path in files:
        for name in expand(path):
            with faults:
                found += text.parse(read(name), file=name)
    faults.settle()
    if not found:
        raise DayflyError(
            Exit.USAGE,
            f"{', '.join(files)}: the file contains no document",
            "write a plugin, baseline, pool, sandbox or route group",
        )
    return found


def reader(file: str) -> Callable[[str], bytes]:
    """Return a function that reads embedded files, relative to the folder of the document's file."""
    folder = "." if file == STANDARD_INPUT else str(Path(file).parent)

    def read(path: str) -> bytes:
        # "/x" is first looked up in the folder, as Signadot does, then as an absolute path.
        place = Path(f"{folder}/{path}")
        if path.startswith("/") and not place.exists():
            place = Path(path)
        with place.open("rb") as source:
            return source.read(text.MAX_BYTES + 1)

    return read


def refusal_with_places(fault: RefusedError, document: ParsedDocument) -> DayflyError | SpecError:
    """Return the server's refusal of a document with its places (see `located`), one line for each problem."""
    first, *others = (with_place(line, document) for line in fault.message.split("\n"))
    if not others:
        return DayflyError(fault.code, str(first), fault.advice)
    first.others = tuple(others)
    return first


def with_place(message: str, document: ParsedDocument | None) -> SpecError:
    """Return a message of the server with file, line and column if it names a field of the document."""
    way, _, problem = message.partition(": ")
    keys = parse_path(way)
    if document is None:
        return SpecError(problem, keys) if keys else SpecError(message)
    is_field = bool(keys) and keys[:1] in document.marks
    return document.error(problem, keys) if is_field else SpecError(message, file=document.file)


def _with_readme(wish: TypedDocument, file: str) -> TypedDocument:
    """Add the README of its folder to a plugin that has none.

    Only a plugin that has its folder to itself gets it; otherwise the README may describe something else.

    Raises:
        SpecError: the README cannot be read, is not text, or is too long.
    """
    if not isinstance(wish, Plugin) or wish.readme is not None or Path(file).name not in _SINGLE_PLUGIN_FILES:
        return wish
    beside = Path(file).with_name(readme.FILE)
    if not beside.is_file() or not beside.resolve().is_relative_to(beside.parent.resolve()):
        return wish  # a link out of the folder could publish any file
    try:
        with beside.open("rb") as source:
            content = source.read(text.MAX_BYTES)
        readme.check(content)
        told = text.decode(content)
        text.check_bounds(told)
    except SpecError as fault:
        raise SpecError(fault.problem, file=str(beside)) from None
    except text.NotTextError as fault:
        raise SpecError(f"is {fault}; save it as UTF-8", file=str(beside)) from None
    except OSError as fault:
        reason = (fault.strerror or "cannot be read").lower()
        raise SpecError(f"{reason}; it is published with the plugin in its folder", file=str(beside)) from None
    return msgspec.structs.replace(wish, readme=told)


def expand(path: str) -> list[str]:
    """Return the files of a folder, or the path itself."""
    try:
        if path == STANDARD_INPUT or not Path(path).is_dir():
            return [path]
        names = sorted(str(entry) for entry in Path(path).iterdir() if entry.suffix in ENDINGS and entry.is_file())
    except OSError as fault:
        raise _unreadable(path, fault) from None
    if not names:
        raise DayflyError(
            Exit.USAGE, f"{path}: no {', '.join(ENDINGS)} file in this folder", "name the files themselves"
        )
    return names


def read(path: str, advice: str = _READ_ADVICE) -> bytes:
    """Return the content of a file, or of standard input. An error has `advice` if no better one is known."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read(text.MAX_BYTES + 1)
        with Path(path).open("rb") as source:
            return source.read(text.MAX_BYTES + 1)
    except (OSError, ValueError) as fault:  # a path with a zero byte
        raise _unreadable(path, fault, advice) from None


def _unreadable(path: str, fault: OSError | ValueError, advice: str = _READ_ADVICE) -> DayflyError:
    reason = (getattr(fault, "strerror", None) or "cannot be read").lower()
    if path.startswith(("http://", "https://")):
        advice = f"files are not downloaded: curl -fsS {quote(path)} | dayfly ... -f -"
    elif isinstance(fault, FileNotFoundError) and (twin := _twin(path)):
        advice = f"did you mean {twin}?"
    return DayflyError(Exit.USAGE, f"{path}: {reason}", advice)


def _twin(path: str) -> str:
    """Return the file of the same name with another ending, or of a similar name in the same folder; or nothing."""
    import difflib

    with contextlib.suppress(OSError, ValueError):
        here = Path(path)
        names = sorted(each.name for each in here.parent.iterdir())
        stems = {Path(name).stem: name for name in names}
        same = [name for name in names if Path(name).stem == here.stem and Path(name).suffix in ENDINGS]
        if close := same or difflib.get_close_matches(here.stem, stems, n=1, cutoff=0.7):
            return str(here.with_name(stems.get(close[0], close[0])))
    return ""


def _refuse_duplicates(found: list[LoadedDocument]) -> None:
    first: dict[tuple[str, str], LoadedDocument] = {}
    for wished in found:
        twin = first.setdefault((wished.kind, wished.name), wished)
        if twin is not wished:
            problem = f"the {wished.kind} {quote(wished.name)} is defined twice, also in {twin.document.file}"
            raise wished.document.error(problem)
