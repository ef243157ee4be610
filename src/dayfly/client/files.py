"""Wishes from files: read, filled in, typed and checked, all of them before anything is asked of a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.compile import check_group, check_hook, check_plugin
from dayfly.spec import documents, readme
from dayfly.spec.errors import Faults, SpecError, parse_path, quote, render_path
from dayfly.spec.lifecycle_hook import LifecycleHook
from dayfly.spec.parsing import template, text
from dayfly.spec.plugin import Plugin
from dayfly.spec.route_group import RouteGroup
from dayfly.spec.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dayfly.client.errors import RefusedError
    from dayfly.spec.documents import TypedDocument
    from dayfly.spec.parsing.text import ParsedDocument

STANDARD_INPUT = "-"
ENDINGS = (".yaml", ".yml", ".json")
_ALONE = tuple(f"plugin{ending}" for ending in ENDINGS)


class Wished(NamedTuple):
    """A wish and the document it was read from."""

    wish: TypedDocument
    document: ParsedDocument

    @property
    def kind(self) -> str:
        """`plugin`, `baseline`, `sandbox`, `route group` or `lifecycle hook`."""
        if isinstance(self.wish, Plugin):
            return "plugin"
        if isinstance(self.wish, LifecycleHook):
            return "lifecycle hook"
        if isinstance(self.wish, RouteGroup):
            return "route group"
        return "baseline" if isinstance(self.wish, Workload) else "sandbox"

    @property
    def subject(self) -> str:
        """As commands name it that are about what lives; empty for what does not."""
        return {"sandbox": self.name, "route group": subject.group(self.name)}.get(self.kind, "")

    @property
    def way(self) -> str:
        """The command that applies it."""
        return "kubectl apply -f" if isinstance(self.wish, LifecycleHook) else "dayfly apply -f"

    @property
    def name(self) -> str:
        """The name within its kind."""
        if isinstance(self.wish, Plugin):
            return self.wish.wire_name
        return f"{self.wish.namespace}/{self.wish.name}" if isinstance(self.wish, Workload) else self.wish.name


def load(files: Iterable[str], sets: Iterable[str]) -> list[Wished]:
    """All wishes of some files: plugins first, then baselines, sandboxes, route groups and hooks, else as they came.

    Raises:
        SpecError: all faults, with their places.
        DayflyError: a file that cannot be read, nothing in them, or one thing wished for twice.
    """
    variables = template.parse_sets(sets)
    faults, found = Faults(), []
    for document in parse(files):
        with faults:
            filled = template.expand(document, variables, reader(document.file))
            wished = Wished(_described(documents.load(filled), document.file), filled)
            if isinstance(wished.wish, Plugin):
                check_plugin(wished.wish, source=wished.document)
            elif isinstance(wished.wish, LifecycleHook):
                check_hook(wished.wish, source=wished.document)
            elif isinstance(wished.wish, RouteGroup):
                check_group(wished.wish, source=wished.document)
            found.append(wished)
    faults.settle()
    order = ("plugin", "baseline", "sandbox", "route group", "lifecycle hook")
    found.sort(key=lambda wished: order.index(wished.kind))
    _refuse_twins(found)
    return found


def load_one(files: Iterable[str], sets: Iterable[str], kind: str) -> Wished:
    """The only wish of some files, which must be of one kind.

    Raises:
        SpecError: as `load`, or a wish of another kind.
        DayflyError: as `load`, or several wishes.
    """
    found = load(files, sets)
    for wished in found:
        if wished.kind != kind:
            raise wished.document.error(f"is a {wished.kind}, not a {kind}; apply it with: {wished.way}")
    if len(found) != 1:
        message = f"there are {len(found)} {kind}s, and this command takes one"
        raise DayflyError(Exit.USAGE, message, "apply several with: dayfly apply -f")
    return found[0]


def only_names(files: Iterable[str], sets: Iterable[str], kind: documents.Kind) -> list[str]:
    """The names in some files of one kind, for which the variables of the names are enough."""
    variables = template.parse_sets(sets)
    found = []
    for document in parse(files):
        if (is_ := documents.classify(document)) != kind:
            raise document.error(f"is a {is_}, not a {kind}")
        bare = documents.only_name(document)
        found.append(documents.name_of(template.expand(bare, variables, reader(document.file))))
    return found


def parse(files: Iterable[str]) -> list[ParsedDocument]:
    """The documents of some files, as written."""
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
            f"{', '.join(files)}: it contains no document",
            "write a plugin, baseline, sandbox or route group",
        )
    return found


def reader(file: str) -> Callable[[str], bytes]:
    """What reads the files that a document embeds, from the folder of its own file."""
    folder = "." if file == STANDARD_INPUT else str(Path(file).parent)

    def read(path: str) -> bytes:
        # Joined as text: "/x" is in the folder for those who know it so from Signadot, and else what it says.
        place = Path(f"{folder}/{path}")
        if path.startswith("/") and not place.exists():
            place = Path(path)
        with place.open("rb") as source:
            return source.read(text.MAX_BYTES + 1)

    return read


def placed(fault: RefusedError, document: ParsedDocument) -> DayflyError | SpecError:
    """The server's refusal of a document, as `located`; of several mistakes it has a line for each."""
    first, *others = (located(line, document) for line in fault.message.split("\n"))
    if not others:
        return DayflyError(fault.code, str(first), fault.advice)
    first.others = tuple(others)
    return first


def located(message: str, document: ParsedDocument | None) -> SpecError:
    """What the server says of a document, with file, line and column where it names a place in it."""
    way, _, problem = message.partition(": ")
    for keys, (line, column) in document.marks.items() if document else ():
        if keys and render_path(keys) == way:
            return SpecError(problem, keys, file=document.file if document else "", line=line, column=column)
    if document is None and (keys := parse_path(way)):
        return SpecError(problem, keys)
    return SpecError(message, file=document.file if document else "")


def _described(wish: TypedDocument, file: str) -> TypedDocument:
    """A plugin with the README of its folder, unless it says itself what its readers are told.

    Only the file that a folder keeps its one plugin in has it: what lies beside others may be about something else.

    Raises:
        SpecError: it cannot be read, is no text, or is too long.
    """
    if not isinstance(wish, Plugin) or wish.readme is not None or Path(file).name not in _ALONE:
        return wish
    beside = Path(file).with_name(readme.FILE)
    if not beside.is_file() or not beside.resolve().is_relative_to(beside.parent.resolve()):
        return wish  # a link that leads out of the folder could publish anything
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
        raise SpecError(f"{reason}; it comes along with the plugin beside it", file=str(beside)) from None
    return msgspec.structs.replace(wish, readme=told)


def expand(path: str) -> list[str]:
    """The files that are meant: those of a folder, or the one itself."""
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


def read(path: str) -> bytes:
    """The content of a file, or of standard input."""
    try:
        if path == STANDARD_INPUT:
            return sys.stdin.buffer.read(text.MAX_BYTES + 1)
        with Path(path).open("rb") as source:
            return source.read(text.MAX_BYTES + 1)
    except (OSError, ValueError) as fault:  # with a zero byte in it, it is no name of a file
        raise _unreadable(path, fault) from None


def _unreadable(path: str, fault: OSError | ValueError) -> DayflyError:
    reason = (getattr(fault, "strerror", None) or "cannot be read").lower()
    return DayflyError(Exit.USAGE, f"{path}: {reason}", "give -f a file or folder that can be read")


def _refuse_twins(found: list[Wished]) -> None:
    first: dict[tuple[str, str], Wished] = {}
    for wished in found:
        twin = first.setdefault((wished.kind, wished.name), wished)
        if twin is not wished:
            problem = f"the {wished.kind} {quote(wished.name)} is defined twice, also in {twin.document.file}"
            raise wished.document.error(problem)
