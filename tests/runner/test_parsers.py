"""The program's parsers and `dayfly.spec.frames` take and refuse the same bytes, and never step beyond them."""

import hashlib
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runner.attempts import order

from dayfly.spec import frames

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "runner" / name for name in ("base.c", "frame.c", "memory.c", "order.c", "sha256.c")]
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'runner'}"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory):
    """Return the verdict of the program's parsers for documents: a frame, an order, and the number of kills."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build the parsers with sanitizers")
    program = tmp_path_factory.mktemp("judge") / "judge"
    sources = [str(path) for path in (Path(__file__).with_name("judge.c"), *SOURCES)]
    subprocess.run(["cc", *FLAGS, *SANITIZERS, "-o", str(program), *sources], check=True)

    def ask(documents: list[bytes]) -> list[tuple[bool, bool, int]]:
        stream = b"".join(struct.pack("<I", len(document)) + document for document in documents)
        said = subprocess.run([str(program)], input=stream, capture_output=True, timeout=100)
        assert said.returncode == 0, said.stderr.decode()[-4000:]
        lines = [line.split() for line in said.stdout.decode().splitlines()]
        assert len(lines) == len(documents)
        return [(frame == "1", whole == "1", int(kills)) for frame, whole, kills in lines]

    return ask


@pytest.fixture(scope="session")
def judge(verdicts):
    return lambda documents: [verdict[:2] for verdict in verdicts(documents)]


def is_frame(document: bytes) -> bool:
    try:
        frames.decode("dayfly-order", document)
    except frames.FrameError:
        return False
    return True


def seal(body: bytes) -> bytes:
    return body + b"end 64\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def mutate(document: bytes, chance: random.Random) -> bytes:
    """One to four small injuries; every second time the digest is made right again, so that the parser gets deeper."""
    again = chance.random() < 0.5
    damaged = bytearray(document[: -len(seal(b""))] if again else document)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(damaged) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(damaged):
            damaged[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del damaged[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            damaged[at:at] = chance.choice([b"\0", b"\n", b" ", b"/", b"..", b"0", b"99999999", b"end 0\n\n"])
        elif kind == 3:
            other = chance.randrange(len(damaged) + 1)
            damaged[at:at] = damaged[min(at, other) : max(at, other)][:200]
        elif at < len(damaged):
            damaged[at] = chance.choice(b"0123456789-az/\n \0")
    return seal(bytes(damaged)) if again else bytes(damaged)


def rich_order() -> bytes:
    return order(
        "#!/bin/sh\necho\n",
        cwd="/tmp",
        file=["/tmp/a\0content", "/tmp/b\0"],
        output=["a\0/tmp/x", "b-2\0/tmp/y"],
        private=["/", "/tmp", "/var/tmp", "/tmp"],
        isolation="root",
        run_ms=1000,
        grace_ms=10,
        start_before_ms=1,
        unit_limit=5,
        log_limit=6,
        log="/tmp/log",
    )


def test_damaged_orders_are_judged_alike_and_safely(judge):
    chance = random.Random(20240229)
    whole = rich_order()
    documents = [whole, *(mutate(whole, chance) for _ in range(20000))]
    verdicts = judge(documents)
    assert verdicts[0] == (True, True)
    for document, (frame, taken) in zip(documents, verdicts, strict=True):
        assert frame == is_frame(document), document
        assert frame or not taken
    # The injuries reach all depths: no frame, a frame but no order, an order still.
    assert all(verdicts.count(kind) > 100 for kind in [(False, False), (True, False), (True, True)])


def test_every_cut_of_an_order_is_refused(judge):
    whole = rich_order()
    verdicts = judge([whole[:length] for length in range(len(whole))])
    assert set(verdicts) == {(False, False)}


def number_of_kills(text: bytes) -> int:
    """The twin of `memory_number`: the first line of that name decides."""
    for line in text.split(b"\0")[0].split(b"\n"):
        name, space, digits = line.partition(b" ")
        if name == b"oom_kill" and space:
            plain = re.fullmatch(rb"[0-9]{1,19}", digits) is not None and int(digits) < 1 << 63
            return int(digits) if plain else -1
    return -1


_LINES = st.sampled_from(
    [
        *(b"oom_kill 0", b"oom_kill 17", b"oom_kill", b"oom_kill ", b"oom_kill -1", b"oom_kill 3 4", b" oom_kill 1"),
        *(b"oom_kill 9223372036854775807", b"oom_kill 9223372036854775808", b"oom_kill 99999999999999999999"),
        *(b"oom_kill_disable 0", b"under_oom 0", b"oom 5", b"", b"oom_kill 1\0", b"oom_kill\t2", b"oom_kill 08"),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(_LINES, st.binary(max_size=20)), max_size=6))
def test_the_kernels_figure_is_read_alike(verdicts, lines):
    text = b"\n".join(lines)
    assert verdicts([text])[0][2] == number_of_kills(text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.from_regex(r"[a-z][a-z0-9-]{0,40}", fullmatch=True), st.binary(max_size=300)), max_size=30)
)
def test_orders_encoded_in_python_are_read_by_the_runner(judge, records):
    short = [(key, value) for key, value in records if len(key) <= 32 and key != "end"]
    assert judge([frames.encode("dayfly-order", short)])[0][0]


def test_receipt_of_the_runner_is_read_in_python(attempt):
    """The opposite direction: `frames.decode` reads every receipt in these tests, here one with all keys."""
    one = attempt()
    receipt = one.run("#!/bin/sh\nkill -15 $$\n", output=f"o\0{one.dir}/none")
    assert list(receipt.fields) == [
        "nonce", "attempt", "outcome", "code", "detail", "started-ms", "ended-ms", "log-bytes", "log-truncated",
    ]  # fmt: skip
    assert receipt.outputs == {"o": ("missing", 0, "")}


def test_digests_agree_at_every_block_border(attempt):
    """SHA-256 pads in blocks of 64: lengths around the borders are where a mistake would show."""
    one = attempt()
    lengths = [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 1000]
    script = "#!/bin/sh\n" + "".join(f"head -c {n} /dev/urandom > {one.dir}/{n}\n" for n in lengths)
    receipt = one.run(script, output=[f"{n}\0{one.dir}/{n}" for n in lengths])
    for n in lengths:
        data = one.output(str(n))
        assert len(data) == n
        assert receipt.outputs[str(n)] == ("present", n, hashlib.sha256(data).hexdigest())
