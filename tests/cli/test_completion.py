"""Completion in real shells."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import COMMAND, Cli, until
from tests.cli.fake_server import Fake, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D -u; "),
}
NEEDED = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in SHELLS
]


class Terminal:
    """A shell with the completion script and scripted key presses."""

    def __init__(self, cli: Cli, shell: str, **more: str) -> None:
        command, first = SHELLS[shell]
        self.ours, theirs = os.openpty()
        self.answered = cli.folder.parent / "answered"
        path = f"{cli.folder.parent}:{os.environ['PATH']}"
        environment = cli.environment(TERM="dumb", PATH=path, PS1="$ ", HOME=str(cli.folder), LC_ALL="C.UTF-8", **more)
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cli.folder, env=environment, start_new_session=True
        )
        cli.started.append(self.process)
        os.close(theirs)
        self._write(f'{first}eval "$(dayfly completion {shell})"; echo rea""dy\n')
        self._until("ready\r\n", "$ ")

    def typed(self, line: str) -> str:
        """Return the command line after these key presses, which may contain Tabs."""
        *pieces, last = line.split("\t")
        for piece in pieces:
            before = self.answered.stat().st_size
            self._write(f"{piece}\t")
            until(
                lambda before=before: self.answered.stat().st_size > before
            )  # wait for the completion before the next key
        # Ctrl-A and a word in front make the completed line a command that shows what it has become.
        self._write(f"{last}\x01printf '<%s>' \x05; echo; echo do\"\"ne\n")
        said = self._until("done\r\n", "$ ")
        return said.replace("\r", "").partition("\ndone")[0].rpartition("\n")[2].replace("><", " ").strip("<>\n ")

    def close(self) -> None:
        """End it."""
        self._write("exit\n")
        os.close(self.ours)
        self.process.wait(30)

    def _write(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def _until(self, *words: str) -> str:
        """Return the output up to these texts, in order."""
        wanted, said = re.compile(".*".join(map(re.escape, words)), re.DOTALL), ""
        while not wanted.search(said):
            said += os.read(self.ours, 65536).decode(errors="replace")
        return said


@pytest.fixture
def shell_cli(cli: Cli) -> Cli:
    """With `dayfly` on the path of a shell."""
    program = cli.folder.parent / "dayfly"
    program.write_text(f'#!/bin/sh\n{shlex.join(COMMAND)} "$@"\necho >>{program.parent}/answered\n')
    program.chmod(0o755)
    for name in ("s-one.yaml", "p two.yaml", "folder/inner.yaml"):
        cli.write(name, "")
    return cli


@pytest.fixture
def url() -> Iterator[str]:
    """A server with a few names in it."""
    fake = Fake()
    resources = [{"name": "database", "plugin": "pg"}]
    box = {"name": "checkout-test", "spec": {"cluster": "local", "resources": resources}, "createdAt": "", "status": {}}
    units = [("database/provision", "database"), ("database/seed", "database"), ("fork:shop/frontend", "")]
    found = [{"id": name, "resource": resource, "name": name.rpartition("/")[2]} for name, resource in units]
    fake.say("GET", "sandboxes", [box, {**box, "name": "$(touch stolen) *"}])
    fake.say("GET", "sandboxes/checkout-test/report", {"units": found})
    fake.say("GET", "resource-plugins", [{"name": "postgres-schema@1.0.0"}])
    with serving(fake) as where:
        yield where


@pytest.mark.slow
@pytest.mark.parametrize("shell", NEEDED)
def test_files_and_names_complete_in_a_real_shell(shell_cli: Cli, shell: str, url: str):
    lines = {
        "dayfly plan -f s-\t": "dayfly plan -f s-one.yaml",
        "dayfly plan -f p\t --set a=b": "dayfly plan -f p two.yaml --set a=b",
        "dayfly plan -f fol\tin\t": "dayfly plan -f folder/inner.yaml",
        "dayfly why \t": "dayfly why checkout-test",
        "dayfly logs che\t data\t se\t": "dayfly logs checkout-test database seed",
        "dayfly logs checkout-test fr\t": "dayfly logs checkout-test frontend",
        "dayfly get sandbox c\t": "dayfly get sandbox checkout-test",
        "dayfly get resources d\t": "dayfly get resources database",
        "dayfly plugin get po\t": "dayfly plugin get postgres-schema",
        "dayfly sandbox del\t c\t": "dayfly sandbox delete checkout-test",
    }
    if shell == "bash":
        lines["dayfly apply --file=s-\t"] = "dayfly apply --file=s-one.yaml"
    terminal = Terminal(shell_cli, shell, DAYFLY_URL=url, DAYFLY_API_KEY="k")
    found = {line: terminal.typed(line) for line in lines}
    terminal.close()
    assert found == lines
    assert not (shell_cli.folder / "stolen").exists()


@pytest.mark.parametrize("shell", NEEDED)
def test_completion_is_silent_without_a_server(shell_cli: Cli, shell: str):
    terminal = Terminal(shell_cli, shell)
    assert terminal.typed("dayfly why che\t") == "dayfly why che"
    terminal.close()
    assert not shell_cli.home.exists()


def test_contexts_of_the_kubeconfig(cli: Cli, tmp_path: Path):
    config = tmp_path / "config"
    config.write_text("apiVersion: v1\ncontexts:\n- {name: production}\n- {name: preview}\n- {name: local}\n")
    more = {"_DAYFLY_COMPLETE": "bash_complete", "COMP_WORDS": "dayfly get --context p", "COMP_CWORD": "3"}
    assert cli(KUBECONFIG=str(config), **more).out == "plain,preview\nplain,production\n"
