"""Secret values are masked in every log, in whatever form and in whatever pieces they are printed."""

import base64
import hashlib
import json
import os
import resource
from urllib.parse import quote

import pytest
from tests.runner.pods import Container

from dayfly.execute.log_masks import forms

SECRET = 's3cr3t/Value+with%odd "signs"'
SAY = "import os, sys, time\n"


def python(code: str) -> str:
    return f"#!/usr/bin/env python3\n{SAY}{code}\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_value_is_found_across_pieces(attempt, isolation, size):
    one = attempt()
    code = f"data = b'before {SECRET} after s3cr3 {SECRET}{SECRET}'\nfor i in range(0, len(data), {size}):\n os.write(1, data[i:i+{size}])\n"
    receipt = one.run(python(code), isolation=isolation, mask=SECRET)
    assert one.log == "before *** after s3cr3 ******"
    assert receipt.fields["log-bytes"] == str(len(one.log))


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode() + b"\n").decode(),
        base64.b64encode((SECRET + "\n").encode()).decode().rstrip("="),
        quote(SECRET),
        quote(SECRET, safe=""),
        json.dumps(SECRET)[1:-1],
    ],
)
def test_secret_is_masked_in_other_encodings(attempt, form):
    one = attempt()
    one.run(f"#!/bin/sh\ncat <<'END'\n<{form}>\nEND\n", mask=SECRET + "\n")
    assert SECRET not in one.log
    assert one.log.rstrip("=>\n") == "<***", form


@pytest.mark.parametrize(
    "value",
    [
        "<script>&'\"",
        "ä😀\uffff\U0010ffff߿ࠀ",
        "a\x1b[1m\b\f\x7f",
        'ä<"\t',
    ],
)
def test_secret_is_masked_in_every_json_escape(attempt, value):
    """The forms are those of Python, of encoders without escapes, and of Go. The Python twin has the same forms."""
    go = json.dumps(value, ensure_ascii=False)
    for char in "<>&":
        go = go.replace(char, f"\\u{ord(char):04x}")
    written = [json.dumps(value), json.dumps(value, ensure_ascii=False), go]
    assert {each[1:-1].encode() for each in written} <= set(forms(value.encode()))
    one = attempt()
    one.run(python(f"os.write(1, {chr(10).join(written).encode()!r})"), mask=value)
    assert one.log == '"***"\n"***"\n"***"'


@pytest.mark.parametrize("value", [b"\xff<<\xfe", b"\xc3<<\xa4", b"\xed\xa0\x80&", b"\xc0\xafaa", b"aaaa\xe2\x82"])
def test_binary_secret_is_masked(attempt, value):
    one = attempt()
    one.run(python(f"os.write(1, b'.' + {value!r} + b'.')"), mask=value)
    assert one.log == ".***."


def test_each_line_of_a_value_of_several(attempt):
    one = attempt()
    key = "-----BEGIN KEY-----\nAAAABBBBCCCC\n  DDDDEEEEFFFF\nend\n-----END KEY-----\n"
    one.run(python(f"for line in {key!r}.splitlines(): print('key:', line.strip())"), mask=key)
    assert one.log == "key: ***\nkey: ***\nkey: ***\nkey: end\nkey: ***\n"


def test_masking_a_value_of_many_lines_stays_fast(attempt):
    """The masker searches for each line of the value, but not for each of them at each byte."""
    one = attempt()
    lines = [base64.b64encode(hashlib.sha256(b"%d" % number).digest()).decode() for number in range(1_000)]
    said = "base64.b64encode(os.urandom(1 << 20)).decode()"
    code = f"import base64; print({lines[7]!r}); print({said}); print({lines[-1]!r})"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    one.run(python(code), mask="\n".join(lines))
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1.5, "of a processor"
    assert one.log.startswith("***\n")
    assert one.log.endswith("\n***\n")


def test_a_longer_value_wins_over_its_beginning(attempt):
    one = attempt()
    one.run("#!/bin/sh\nprintf 'pass1234 pass1 pass12'\n", mask=["pass1", "pass1234"])
    assert one.log == "*** *** ***2"


@pytest.mark.parametrize("value", ["", "abc", "a\n\n\n\n"])
def test_a_short_value_masks_nothing(attempt, value):
    one = attempt()
    one.run("#!/bin/sh\necho abc a\n", mask=value)
    assert one.log == "abc a\n"


def test_beginning_of_a_secret_alone_is_printed(attempt):
    one = attempt()
    one.run("#!/bin/sh\nprintf s3cr3t\n", mask=SECRET)
    assert one.log == "s3cr3t"


def test_sensitive_output_is_masked_before_and_after_it_exists(attempt, isolation, place):
    log = place / "the.log"
    log.write_text("of an earlier life: generated-key\n")
    one = attempt()
    code = f"""value = "generated-key"
os.write(1, (value + " early " + value + "\\n").encode())
time.sleep(0.05)
open("{one.dir}/key", "w").write(value)
os.write(1, ("late " + value + "\\n").encode())
open("{one.dir}/other", "w").write("known-to-all")
os.write(1, b"known-to-all")
"""
    receipt = one.run(
        python(code),
        isolation=isolation,
        log=str(log),
        sensitive_output=f"key\0{one.dir}/key",
        output=f"other\0{one.dir}/other",
    )
    stars = "*" * len("generated-key")
    lines = log.read_text().splitlines()
    assert lines[0] == "of an earlier life: generated-key"
    assert lines[1] in (f"{stars} early {stars}", "*** early ***")
    assert lines[2:] == ["late ***", "known-to-all"]
    assert one.output("key") == b"generated-key"
    assert receipt.outputs["key"][0] == "present"


def test_another_value_of_the_same_length_and_time_is_known_too(attempt):
    one = attempt()
    code = f"""key = "{one.dir}/key"
open(key, "w").write("generated-key")
before = os.stat(key)
os.write(1, b"one generated-key\\n")
time.sleep(0.05)
open(key, "r+").write("different-key")
os.utime(key, ns=(before.st_atime_ns, before.st_mtime_ns))
os.write(1, b"two different-key\\n")
"""
    one.run(python(code), sensitive_output=f"key\0{one.dir}/key")
    assert "different-key" not in one.log
    assert one.output("key") == b"different-key"


def test_no_fifo_in_an_outputs_place_holds_it_up(attempt):
    one = attempt()
    receipt = one.run(
        f"#!/bin/sh\nmkfifo {one.dir}/key; ln -s /proc/kmsg {one.dir}/link; echo said; sleep 0.05; echo more\n",
        sensitive_output=[f"key\0{one.dir}/key", f"link\0{one.dir}/link"],
    )
    assert (receipt.outcome, one.log) == ("exited", "said\nmore\n")


def test_log_limit_counts_masked_bytes(attempt):
    one = attempt()
    receipt = one.run(python("print('x' * 10 + 'generated-key' + 'y' * 100)"), mask="generated-key", log_limit=15)
    assert one.log == "x" * 10 + "***yy\n[dayfly: log cut at 15 bytes]\n"
    assert receipt.fields["log-truncated"] == "1"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container's namespaces")
def test_in_a_pod_too(place, runner):
    one = Container.make(place / "root", runner)
    mounted = one.secret("pw", b"mounted-password")
    ended = one.run(
        "#!/bin/sh\necho $PW $(cat /tmp/pw) open:$OPEN; printf made-here > /tmp/key; echo made-here\n",
        sensitive_env=f"PW\0{mounted}",
        sensitive_file=f"/tmp/pw\0{mounted}",
        secret_env=f"OPEN\0{one.secret('open', b'not-sensitive')}",
        sensitive_output="key\0/tmp/key",
    )
    assert ended.log == b"*** *** open:not-sensitive\n***\n"
    assert ended.contents == {"key": b"made-here"}
