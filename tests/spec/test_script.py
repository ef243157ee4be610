"""Line ends of scripts, by their interpreters."""

import pytest

from dayfly.spec.errors import SpecError
from dayfly.spec.steps import script

SHELLS = (
    "/bin/sh",
    "/bin/sh -eu",
    "/bin/bash",
    "/usr/local/bin/bash -x",
    "/bin/dash",
    "/bin/ash",
    "/bin/ksh",
    "/opt/zsh/bin/zsh",
    "/bin/busybox sh",
    "/usr/bin/env sh",
    "/usr/bin/env -S bash -eu",
    "/usr/bin/env -S -i A=b bash",
    "/usr/bin/env -S -u python3 sh",
    "/usr/bin/env -S -C python3 sh",
    "/usr/bin/env -iS sh -e",
    " /bin/sh",
    "/usr/bin/fish",
    "/usr/bin/sed -f",
    "/usr/bin/make -f",
    "/opt/own/tool",
)
TOLERANT = (
    "/usr/bin/python3",
    "/usr/bin/env python3.11",
    "/usr/bin/env -S python -u",
    "/usr/bin/env -Spython3",
    '/usr/bin/env -S "python3" -u',
    "/usr/bin/env -S A=b python3",
    "/usr/bin/perl -w",
    "/usr/bin/node",
    "/usr/bin/tclsh8.6",
)


def refusal(text):
    with pytest.raises(SpecError) as fault:
        script.check(text, ("spec", "create", 0, "script"))
    return fault.value.problem


@pytest.mark.parametrize("interpreter", SHELLS)
@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("true\nrm x\r\n", "line 3 ends in a carriage return"),
        ("rm x\r\nrm y\r\ntrue\nrm z\r", "line 2 (and 2 more) ends in a carriage return"),
        ("rm x\rrm y\n", "line 2 contains a carriage return"),
        ("cat <<END\r\nEND\r\n", "line 2 (and 1 more) ends in a carriage return"),
    ],
)
def test_carriage_return_is_refused_in_each_line(interpreter, rest, said):
    found = refusal(f"#!{interpreter}\n{rest}")
    assert found.startswith(said)
    assert found.endswith("reads as text; save the script with Unix line endings (LF)")


@pytest.mark.parametrize("interpreter", TOLERANT)
def test_carriage_return_is_accepted_where_it_is_a_line_end(interpreter):
    script.check(f"#!{interpreter}\nprint(1)\r\nprint(2)\r\n", ())


@pytest.mark.parametrize("interpreter", [*SHELLS, *TOLERANT])
@pytest.mark.parametrize("rest", ["\r\nx", "\rx", "\rx\ny", "\r"])
def test_carriage_return_in_first_line_is_always_refused(interpreter, rest):
    assert "line 1" in refusal(f"#!{interpreter}{rest}")


@pytest.mark.parametrize("interpreter", SHELLS)
def test_unix_line_ends_are_accepted(interpreter):
    script.check(f"#!{interpreter}\nprintf 'a\\r\\n'\n", ())


@pytest.mark.parametrize("rest", ["bash -e", "-i bash", "-u A sh", "./tool x", "A=b sh", "python3 -u"])
def test_several_words_behind_env_are_refused(rest):
    assert refusal(f"#!/usr/bin/env {rest}\ntrue\n") == (
        f'the kernel passes "{rest}" to env as one argument; write e.g. "#!/usr/bin/env -S {rest}"'
    )


@pytest.mark.parametrize(
    "rest", ["", " ", " -", " -i", " --", " A=b", " --help", " -S", " -S -i A=b", " -S -u python3"]
)
def test_env_without_a_program_is_refused(rest):
    assert refusal(f"#!/usr/bin/env{rest}\nrm x\n").endswith('names no program; write e.g. "#!/usr/bin/env python3"')


@pytest.mark.parametrize("rest", [" sh", "\tsh ", " -S sh -e", ' -S "$SHELL" -e', " -vS sh -e"])
def test_env_with_a_program_is_accepted(rest):
    script.check(f"#!/usr/bin/env{rest}\nrm x\n", ())
