"""`plugin init`: create the folder of a new plugin, from a template or from an example of the gallery."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from dayfly.cli import installed
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit, unknown_name_error
from dayfly.spec.errors import SpecError
from dayfly.spec.scalars import names
from dayfly.spec.schema import json_schema

SCHEMA = Path(".dayfly", "plugin.schema.json")
"""In a separate folder, because `-f .` reads .json files in the plugin's folder as specs."""
_TEMPLATE = Path(__file__).resolve().parent / "plugin_template"
_MODELINE = f"# yaml-language-server: $schema={SCHEMA}\n"
_MAX_SANDBOX_NAME = 30 - len("-demo")
_TEST = """\
#!/bin/sh
# Check the plugin. With params, also create and delete a resource: ./test.sh -p NAME=VALUE
set -eu
cd "$(dirname -- "$0")"
dayfly plugin lint plugin.yaml
[ $# -eq 0 ] || dayfly with -f plugin.yaml "$@" -- true
"""


def create(folder: str, example: str | None) -> None:
    """Write the files of a new plugin.

    Raises:
        DayflyError: the folder is not empty, its name is not valid for a plugin, or the example does not exist.
    """
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DayflyError(Exit.USAGE, f"{folder}: exists and is not empty", "name a new or an empty folder")
    files = _from_example(example) if example is not None else _from_template(target.resolve().name)
    files[SCHEMA] = (json.dumps(json_schema.file_schema("plugin"), indent=1) + "\n", 0o644)
    for path, (content, mode) in files.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            place.write_text(content)
        place.chmod(mode)
    show.print_message(f"Wrote {len(files)} files to {folder}. Try it with: {target / 'test.sh'}")


def gallery() -> dict[str, Path]:
    """Return the folders of the examples, by name."""
    root = installed.gallery()
    found = sorted(root.iterdir()) if root.is_dir() else []
    return {each.name: each for each in found if (each / "plugin.yaml").is_file()}


def _from_template(name: str) -> dict[Path, tuple[str | bytes, int]]:
    try:
        names.check("plugin", name)
    except SpecError as fault:
        raise DayflyError(
            Exit.USAGE, str(fault), "the plugin gets the name of its folder: choose another folder"
        ) from None
    short = name[:_MAX_SANDBOX_NAME].rstrip("-").lower()
    written = {"NAME": name, "SHORT": short}
    return {
        path: (re.sub(r"\b(NAME|SHORT)(?=@1|-demo|\n)", lambda match: written[match[1]], content.decode()), mode)
        for path, (content, mode) in _read(_TEMPLATE).items()
    }


def _from_example(name: str) -> dict[Path, tuple[str | bytes, int]]:
    known = gallery()
    if name not in known:
        raise unknown_name_error(f'the gallery has no example "{name}"', name, known, f"{', '.join(known)}")
    found: dict[Path, tuple[str | bytes, int]] = dict(_read(known[name]))
    plugin, mode = found[Path("plugin.yaml")]
    found[Path("plugin.yaml")] = (_MODELINE + _text(plugin), mode)
    readme = Path("README.md")
    if readme in found:
        found[readme] = (_adapt_readme(_text(found[readme][0]), name), found[readme][1])
    found.setdefault(Path("test.sh"), (_TEST, 0o755))
    return found


def _read(folder: Path) -> dict[Path, tuple[bytes, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        path.relative_to(folder): (path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644) for path in files
    }


def _text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode()


def _adapt_readme(readme: str, name: str) -> str:
    """Return the README of an example with its paths adapted to the new folder."""
    found = readme.replace("./dayfly ", "dayfly ").replace(f"examples/{name}/", "").replace(f"examples/{name}", ".")
    found = re.sub(r"rom\s+the\s+root\s+of\s+the\s+checkout", "rom this folder", found)
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", found)  # the files next to the example are not copied
