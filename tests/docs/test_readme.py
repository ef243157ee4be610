"""The commands of README and CONTRIBUTING run, links of all pages work, and no file contains an outside address."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.conftest import ROOT, Person
from tests.docs.transcript import commands

README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
# Hosts in the names of document formats; no program sends requests to them.
_FORMATS = ("json-schema.org", "static.modelcontextprotocol.io", "www.w3.org")
# Ends of host names that do not exist outside: reserved ones, and those within a cluster.
_INSIDE = (".example", ".example.com", ".invalid", ".test", ".localhost", ".svc", ".deploy", ".local", ".internal")
# Loopback addresses, in the forms that tests of webhooks use.
_LOOPBACK = ("127.", "0x7f.", "010.0.0.1")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HOST = re.compile(r"\bhttps?://([^/\s\"'`<>(){}\\]+)")
_INDEX = re.compile(r"--(?:extra-)?index-url[ =]\S|\bGO(?:PROXY)=(?!off\b)|^registry=")
# Split, so that this file does not contain these words.
_UNFINISHED = re.compile(r"\b(?:TO)DO\b|\b(?:FIX)ME\b|\b(?:X)XX\b")


def tracked() -> list[Path]:
    """Return the files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


TRACKED = tracked()
PAGES = [path for path in TRACKED if path.suffix == ".md"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines() -> Iterator[tuple[str, str]]:
    """Yield the place and text of each line of the project's texts, without the licence."""
    for path in TRACKED:
        if path.name == "LICENSE" or path.suffix == ".png":
            continue
        name = relative(path)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            yield f"{name}:{number}", line


def typed(person: Person, script: str) -> str:
    """Run a script at the root of the checkout and return its output."""
    ended = subprocess.run(
        ["/bin/sh", "-c", f"set -eu\n{script}"],
        cwd=ROOT,
        env={**person.environment, "TMPDIR": str(person.home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.slow
def test_readme_commands_work(person: Person):
    script = "".join(command.text for command in commands(README) if "make " not in command.text)
    assert script.count("./dayfly ") >= 8
    # Another program may use the default port.
    said = typed(person, script.replace("up --detach", "up --detach --port 0"))
    assert "accounts-demo is not waiting for anything" in said
    assert "USERS_REGISTER_NAMES=" in said
    assert 'Sandbox "accounts-demo" is gone.' in said
    assert "SQLITE_NOTES_PROVISION_PATH=" in said
    assert [list(folder.iterdir()) for folder in person.home.glob("tmp.*")] == [[]], "both commands left nothing"


def test_readme_plugin_creates_and_deletes_its_folder(person: Person):
    (plugin,) = re.findall(r"^```yaml\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert plugin.count("/srv") == 3
    place = person.home / "srv"
    place.mkdir()
    (person.home / "plugin.yaml").write_text(plugin.replace("/srv", str(place)))
    shown = typed(
        person, f"./dayfly with -f {person.home}/plugin.yaml -p owner=ada -- sh -c 'ls -d \"$SCRATCH_MAKE_FOLDER\"'"
    )
    assert re.search(rf"^{re.escape(str(place))}/ada-[a-z0-9]{{26}}$", shown, re.MULTILINE)
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_make_run_shows_a_whole_sandbox(person: Person):
    said = typed(person, "make run")
    assert "Dayfly made this database for one sandbox" in said
    assert "Nothing: all databases are gone.\n" in said
    assert said.endswith("./dayfly page\n")


@pytest.mark.parametrize("page", [README, CONTRIBUTING], ids=relative)
def test_every_make_command_is_a_target(page: Path):
    found = set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE))
    assert found
    assert found <= targets()


def test_make_help_lists_the_main_targets(person: Person):
    said = typed(person, "make help")
    assert {"run", "test", "check", "bench"} <= {line.split()[0] for line in said.splitlines() if line.strip()}


def test_simulator_command_of_contributing_repeats_a_schedule(person: Person):
    (command,) = re.findall(r"`(\.venv/bin/python -m tests\.simulator --seed) N`", CONTRIBUTING.read_text())
    first, second = typed(person, f"{command} 7"), typed(person, f"{command} 7")
    assert first == second


def test_package_map_matches_the_packages():
    rows = dict(re.findall(r"^\| `([a-z_/]+)` \| (.*) \|$", CONTRIBUTING.read_text(), re.MULTILINE))
    source = ROOT / "src" / "dayfly"
    inits = (*source.glob("*/__init__.py"), *source.glob("*/*/__init__.py"))
    packages = {str(each.parent.relative_to(source)): _purpose(each) for each in inits}
    assert rows == packages, "copy the first line of each package's docstring into CONTRIBUTING.md"


def _purpose(init: Path) -> str:
    return (ast.get_docstring(ast.parse(init.read_text())) or "").partition("\n")[0]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_all_links_of_a_page_work(page: Path):
    broken = [link for link in _LINK.findall(page.read_text()) if not _link_works(page, link)]
    assert broken == []


def _link_works(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists() or (target.is_file() and target not in TRACKED):
        return False
    return not anchor or anchor in _anchors(target)


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a forge creates for the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_no_file_contains_an_outside_address():
    """No file names a registry, mirror or index, because each machine has its own settings for packages."""
    outside = [f"{place}: {host}" for place, line in lines() for host in _HOST.findall(line) if not _is_inside(host)]
    assert outside == []
    assert [place for place, line in lines() if _INDEX.search(line)] == []


def _is_inside(host: str) -> bool:
    name = host.rpartition("@")[2].partition(":")[0]
    return name.startswith(_LOOPBACK) or "." not in name or name.endswith(_INSIDE) or name in _FORMATS


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1:80", True),
        ("shop.default.svc", True),
        ("u@a.example:1", True),
        ("index.acme.io", False),
        ("x@acme.org:443", False),
    ],
)
def test_outside_addresses_are_recognised(host: str, inside: bool):
    assert _is_inside(host) is inside


@pytest.mark.parametrize(("line", "word"), [("pip --@-url x", "index"), ("GO@=direct", "PROXY"), ("@=x", "registry")])
def test_index_settings_are_recognised(line: str, word: str):
    assert _INDEX.search(line.replace("@", word))


def test_no_file_contains_the_path_of_this_checkout():
    here = re.compile(re.escape(str(ROOT)) + r"\b")
    assert [place for place, line in lines() if here.search(line)] == []


def test_no_file_contains_a_reminder():
    assert [place for place, line in lines() if _UNFINISHED.search(line)] == []
