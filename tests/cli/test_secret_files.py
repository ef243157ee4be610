"""`--secrets-file`: parsing, errors, and that no error contains a value."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import COMMAND
from tests.cli.test_secrets import CANARY, secrets

from dayfly.cli import secret_files
from dayfly.client.errors import DayflyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.command import Cli


def _fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _huge(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1 << 30)


def _written(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)
        path.chmod(0o600)

    return write


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "not there": (lambda _: None, "no such file"),
    "a pipe": (_fifo, "is not a regular file"),
    "a socket": (_socket, "no such device"),
    "a folder": (lambda path: path.mkdir(mode=0o700), "is not a regular file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "a file of 1 GiB": (_huge, "has 1073741824 bytes; the limit is 262144"),
    "a zero byte": (_written(f"A={CANARY}\0".encode()), "contains a zero byte"),
    "UTF-16": (_written(f"A={CANARY}".encode("utf-16")), "is UTF-16, not UTF-8; save it as UTF-8"),
    "no UTF-8": (_written(f"A={CANARY}\n".encode() + b"B=\xff\xfe"), "is not UTF-8 at byte 28; save it as UTF-8"),
    "a name twice": (_written(f"A={CANARY}\n\n# c\nA={CANARY}".encode()), ":4: has the same name as line 1"),
    "no name and value": (_written(f"A=1\n\n{CANARY}\n".encode()), ":3: is not NAME=VALUE"),
    "a quote without an end": (_written(f'\nA="{CANARY}\nB=2\n'.encode()), ":2: is not NAME=VALUE"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_unusable_secret_file_is_refused_without_its_content(tmp_path: Path, what: str):
    make, said = HOSTILE[what]
    make(path := tmp_path / ".env")
    with pytest.raises(DayflyError) as fault:
        secret_files.read(str(path))
    assert said in str(fault.value), fault.value
    assert CANARY not in f"{fault.value} {fault.value.__context__} {fault.value.__cause__}"


@contextlib.contextmanager
def _piped(data: bytes) -> Iterator[str]:
    """Yield the path of an open pipe through which the data comes, as `<(...)` does."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb") as source:
        writing = threading.Thread(target=lambda: (source.write(data), source.close()))
        writing.start()
        yield f"/dev/fd/{reader}"
        writing.join()


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_secrets_come_through_a_pipe(size: int):
    with _piped(f"A={'x' * size}\nB=2\n".encode()) as path:
        assert secret_files.read(path) == {"A": "x" * size, "B": "2"}


def test_secrets_come_through_a_named_pipe_with_a_writer(tmp_path: Path):
    os.mkfifo(path := tmp_path / "pipe", 0o600)
    writing = threading.Thread(target=path.write_text, args=("A=1\n",))
    writing.start()
    assert secret_files.read(str(path)) == {"A": "1"}
    writing.join()


def test_pipe_with_too_much_is_refused_without_its_content():
    data = f"A={CANARY}\n".encode() * (secret_files.MAX_FILE_BYTES // 10)
    with _piped(data[: secret_files.MAX_FILE_BYTES + 1]) as path, pytest.raises(DayflyError) as fault:
        secret_files.read(path)
    assert "has more than 262144 bytes" in str(fault.value)
    assert CANARY not in str(fault.value)


def test_one_pipe_serves_all_sandboxes_of_an_apply(served: Cli):
    resources = [{"name": "db", "spec": json.loads(TAKES_PIN)}]
    for name in ("one", "two"):
        served.write(f"{name}.yaml", json.dumps({"name": name, "spec": {"cluster": "local", "resources": resources}}))
    line = f"{shlex.join(COMMAND)} apply -f one.yaml -f two.yaml --secrets-file <(echo PIN={CANARY})"
    done = subprocess.run(
        ["bash", "-c", line], cwd=served.folder, env=served.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert served.sandboxes() == ["one", "two"]


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o640, 0o777])
def test_a_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / ".env"
    path.write_text(f"A={CANARY}")
    path.chmod(mode)
    with pytest.raises(DayflyError, match=f"other users can read or change it; chmod 600 {path}"):
        secret_files.read(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_link_to_anothers_file_is_refused(tmp_path: Path):
    theirs, link = tmp_path / "theirs", tmp_path / ".env"
    theirs.write_text(f"A={CANARY}")
    theirs.chmod(0o600)
    os.chown(theirs, 4711, 4711)
    link.symlink_to(theirs)
    with pytest.raises(DayflyError, match="belongs to another user"):
        secret_files.read(str(link))


def test_dotenv_file_is_parsed_without_expansion(tmp_path: Path):
    path = tmp_path / ".env"
    path.write_text(
        "\ufeff# a remark\nexport A=one two  # said\nB='$HOME ${A}'\nC=\"a\\nb\"\nD='-----BEGIN-----\nx\n-----END-----'\n"
        "E = $(id)\r\nF=`id`\n"
    )
    path.chmod(0o600)
    key = "-----BEGIN-----\nx\n-----END-----"
    known = {"A": "one two", "B": "$HOME ${A}", "C": "a\nb", "D": key, "E": "$(id)", "F": "`id`"}
    assert secret_files.read(str(path)) == known


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "PIN is empty"),
        ("123", "fewer than 4 bytes"),
        ("1\n\n\n\n", "fewer than 4"),
        ("x" * 65_537, "at most 65536"),
    ],
)
def test_unmaskable_value_is_refused_as_secret(cli: Cli, value: str, said: str):
    body = {"spec": {"resources": [{"name": "db", "spec": json.loads(TAKES_PIN)}]}}
    with pytest.raises(DayflyError, match=said):
        secret_files.choose_for_sandbox(body, str(cli.folder / secrets(cli, f'PIN="{value}"')))


TAKES_PIN = json.dumps(
    {
        "create": [
            {
                "name": "a",
                "script": "#!/bin/sh",
                "inputs": [{"name": "pin", "valueFromSandbox": True, "secret": True}],
            }
        ]
    }
)


def test_secret_name_with_resource_takes_precedence(cli: Cli):
    body = {"spec": {"resources": [{"name": "db", "spec": json.loads(TAKES_PIN)}]}}
    texts = ("PIN=upper\n", "pin=plain\n", "DB_PIN=both\n", "db.pin=dotted\n")
    found = [
        secret_files.choose_for_sandbox(body, str(cli.folder / secrets(cli, "".join(texts[: number + 1]))))
        for number in range(4)
    ]
    assert [each["db"]["pin"] for each in found] == ["upper", "plain", "both", "dotted"]


def _asking(*names: str) -> dict[str, object]:
    inputs = [{"name": name, "valueFromSandbox": True, "secret": True} for name in names]
    step = {"script": "#!/bin/sh"}
    return {"create": [{**step, "name": f"s{number}", "inputs": [each]} for number, each in enumerate(inputs)]}


@pytest.mark.parametrize(
    ("wanted", "text", "said"),
    [
        ({"db": ("a-b", "A-B")}, "A_B=mine and yours\n", "A_B may be db.A-B or db.a-b"),
        ({"db": ("ab", "AB")}, "AB=mine and yours\n", "AB may be db.AB or db.ab"),
        ({"a": ("b-c",), "a-b": ("c",)}, "A_B_C=mine and yours\n", "A_B_C may be a.b-c or a-b.c"),
    ],
)
def test_secrets_with_equal_variable_names_need_separate_values(cli: Cli, wanted, text: str, said: str):
    body = {"spec": {"resources": [{"name": name, "spec": _asking(*names)} for name, names in wanted.items()]}}
    with pytest.raises(DayflyError, match=said) as caught:
        secret_files.choose_for_sandbox(body, str(cli.folder / secrets(cli, text)))
    apart = [f"{resource}.{name}" for resource, names in wanted.items() for name in names]
    assert all(f"{each}=..." in caught.value.advice for each in apart)
    text = "".join(f"{each}=value of {each}\n" for each in apart)
    found = secret_files.choose_for_sandbox(body, str(cli.folder / secrets(cli, text)))
    assert [found[one][name] for one, names in wanted.items() for name in names] == [
        f"value of {each}" for each in apart
    ]
