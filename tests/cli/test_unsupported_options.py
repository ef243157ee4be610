"""Every verb at every place: the server of a home, a cluster by its context, another server. Walked from the parser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from dayfly.cli import unsupported_options
from dayfly.cli.verbs import root, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "sandbox": "name: thing\nspec: {cluster: local}\n",
    "routegroup": "name: thing\nspec: {cluster: local, match: {label: {key: a, value: b}}}\n",
    "plugin": "name: thing\nspec: {runner: {image: busybox}, create: [{name: a, script: '#!/bin/sh'}]}\n",
}
FILES["plan"] = "name: thing\nspec: {cluster: local, resources: [{name: db, plugin: of-the-place}]}\n"
MORE = {
    "logs": ["thing"],
    "reset": ["thing", "db"],
    "abandon": ["--reason", "why"],
    "with": ["true"],
    "operator": ["--runner", "/bin/true"],
}
"""Further arguments that a verb needs."""
ASKED = {unsupported_options.SERVER: 'no server "none" is known here', unsupported_options.CONTEXT: "context"}
"""The errors for an unknown server and an unknown context."""


def _walk(found: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(found, click.Group):
        if found.invoke_without_command:
            yield " ".join(path), found
        for name in found.list_commands(click.Context(found)):
            yield from _walk(found.get_command(click.Context(found), name), (*path, name))
    else:
        yield " ".join(path), found


VERBS = dict(_walk(root))
CELLS = [(verb, option) for verb in VERBS for option in (unsupported_options.CONTEXT, unsupported_options.SERVER)]


def _has(verb: str, option: str) -> bool:
    return any(option in param.opts for param in VERBS[verb].params)


def _typed(verb: str, folder: Path) -> list[str]:
    """A command line that has all that the verb requires."""
    words = verb.split()
    for param in VERBS[verb].params:
        needs_file = "-f" in param.opts and verb in ("plugin test", "plugin plan", "plugin diff")
        if not (param.required or needs_file) or "command_line" in (param.name or ""):
            continue
        if isinstance(param, click.Argument):
            words.append("thing")
        elif "-f" in param.opts:
            file = folder / "thing.yaml"
            file.write_text(FILES.get(verb.split(maxsplit=1)[0], FILES["plugin"]))
            words += ["-f", str(file)]
    if verb in ("sandbox delete", "routegroup delete", "plugin delete", "pool delete"):
        words.append("thing")
    return words


@pytest.mark.parametrize(("verb", "option"), CELLS)
def test_verb_reaches_the_chosen_host_or_names_an_alternative(verb, option, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("DAYFLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index.html").touch()
    monkeypatch.setattr("dayfly.page.files.STATIC", tmp_path)  # a checkout need not have its page built
    typed, more = _typed(verb, tmp_path), MORE.get(verb, [])
    code = run([*typed[: len(verb.split())], option, "none", *typed[len(verb.split()) :], *more])
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    if _has(verb, option):
        assert ASKED[option] in err
        assert verb not in unsupported_options.MESSAGES or option not in unsupported_options.MESSAGES[verb], (
            "a message for an existing option"
        )
    else:
        assert code == 2
        assert err.startswith(f"dayfly: dayfly {verb} "), err
        assert "such option" not in err


def test_no_words_are_of_a_verb_that_is_not_there():
    assert set(unsupported_options.MESSAGES) <= set(VERBS)


def test_misspelled_host_option_is_an_unknown_option(capfd):
    assert run(["apply", "--contxt", "x"]) == 2
    assert "No such option" in capfd.readouterr().err
    assert run(["sb", "apply", "-n", "x"]) == 2
    assert "dayfly manifest -f FILE | kubectl apply" in capfd.readouterr().err, "a short name is the same verb"


def test_reference_states_which_hosts_each_verb_supports():
    page = (ROOT / "docs" / "reference/cli.md").read_text().partition("## Hosts")[2].partition("\n## ")[0]
    stated = {}
    for verbs, *cells in re.findall(r"^\| (\[`.+?) \| (yes|no)\b.*? \| (yes|no)\b.* \|$", page, re.MULTILINE):
        for verb in re.findall(r"`(.+?)`", verbs):
            stated[verb] = tuple(cell == "yes" for cell in cells)
    assert stated == {
        verb: (_has(verb, unsupported_options.CONTEXT), _has(verb, unsupported_options.SERVER)) for verb in VERBS
    }
