"""The page before the sign-in: its files and their headers."""

from __future__ import annotations

import functools
import http.client
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.server.client import serving
from tests.server.fake_host import FakeHost

from dayfly.page import files
from dayfly.server.db.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Get = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the built one, empty."""
    folder = tmp_path / "static"
    folder.mkdir()
    monkeypatch.setattr(files, "PageFiles", functools.partial(files.PageFiles, folder))
    return folder


@pytest.fixture
def get(tmp_path: Path, static: Path) -> Iterator[Get]:
    """Send a GET to a server with these files, as a browser without a key."""
    Store.open(tmp_path / "control.db").close()
    with serving(tmp_path / "control.db", {"local": FakeHost()}) as client:

        def ask(path: str, method: str = "GET", accept: str = "text/html") -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
            connection.request(method, path, headers={"Accept": accept})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            found = answer.status, headers, answer.read()
            connection.close()
            return found

        yield ask


def build(static: Path) -> None:
    (static / "assets").mkdir()
    (static / "index.html").write_text("<!doctype html><title>Dayfly</title>")
    (static / "assets" / "index-abc.js").write_text("1")
    (static / "assets" / "index-abc.css").write_text("a{}")
    (static.parent / "secret").write_text("canary")


def test_missing_page_build_says_how_to_build_it(get: Get, static: Path):
    status, _, body = get("/page/")
    assert (status, body.decode()) == (503, "The page is not built in this checkout. Build it with: make page\n")
    build(static)
    assert get("/page/")[0] == 200


def test_each_view_is_the_same_document_and_never_kept(get: Get, static: Path):
    build(static)
    for path in ("/page", "/page/", "/page/sandboxes/a", "/page/enter", "/page/sandboxes/..%2f..%2fsecret"):
        status, headers, body = get(path)
        assert (status, headers["cache-control"], headers["content-type"]) == (
            200,
            "no-cache",
            "text/html; charset=utf-8",
        )
        assert b"<title>Dayfly" in body, path


def test_hashed_files_are_kept_for_ever_and_others_are_none(get: Get, static: Path):
    build(static)
    status, headers, body = get("/page/assets/index-abc.js")
    assert (status, headers["content-type"], body) == (200, "text/javascript; charset=utf-8", b"1")
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert get("/page/assets/index-old.js")[0] == 404
    for path in ("/page/assets/../../secret", "/page/assets/..%2f..%2fsecret", "/page/assets//etc/passwd"):
        assert get(path)[0] == 404, path
    assert get("/page/", method="POST")[0] == 405


def test_page_runs_only_its_own_files_and_cannot_be_framed(get: Get, static: Path):
    for path in ("/page/", "/page/assets/index-abc.js", "/page/assets/none.js"):
        for _ in range(2):
            _, headers, _ = get(path)
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy == {
                "default-src": "'none'",
                "script-src": "'self'",
                "style-src": "'self'",
                "connect-src": "'self'",
                "img-src": "'self' data:",
                "base-uri": "'none'",
                "form-action": "'none'",
                "frame-ancestors": "'none'",
            }
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        if not (static / "index.html").exists():
            build(static)


def test_browsers_are_redirected_from_the_root_to_the_page(get: Get):
    status, headers, _ = get("/")
    assert (status, headers["location"]) == (307, "/page/")
    assert get("/", accept="*/*")[0] == 401


def test_checkout_builds_the_page_on_first_use(tmp_path: Path):
    """The checkout's own command with a build, and a command line, that only say that they were called."""
    root = tmp_path / "checkout"
    static = root / "src/dayfly/page/static"
    for name, says in {
        "scripts/page.sh": f"echo build; mkdir -p {static}; touch {static}/index.html",
        ".venv/bin/python": 'shift 2; echo "dayfly $*"',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"#!/bin/sh\n{says}\n")
        (root / name).chmod(0o755)
    (root / "requirements").mkdir()
    (root / "requirements/run.txt").touch()
    (root / ".venv/.stamp-run").touch()
    shutil.copy(Path(__file__).parents[2] / "dayfly", root)

    def said(*arguments: str) -> str:
        return subprocess.run([root / "dayfly", *arguments], capture_output=True, text=True, check=True).stdout

    assert said("status") == "dayfly status\n"
    assert said("page", "--help") == "dayfly page --help\n"
    assert said("page", "--no-open") == "build\ndayfly page --no-open\n"
    assert said("page") == "dayfly page\n"
    (static / "index.html").unlink()
    (root / "scripts/page.sh").write_text("#!/bin/sh\nexit 3\n")
    failed = subprocess.run([root / "dayfly", "page"], capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
