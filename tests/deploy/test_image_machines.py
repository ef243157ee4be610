"""Images for each architecture, made of Debian's Python."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from testcluster import build, images
from tests.policy.apiserver import ROOT

from dayfly import __version__
from deploy import debian, elf, image

OWN = platform.machine()
(OTHER,) = images.ARCHITECTURES.keys() - {OWN}
MODULES = """
import importlib, pathlib, sys
import psycopg  # before psycopg_binary
bases = [pathlib.Path(each) for each in sys.path if each and pathlib.Path(each).is_dir()]
for path in sorted({path for base in bases for path in base.rglob("*.so") if ".libs" not in str(path)}):
    base = max((each for each in bases if each in path.parents), key=lambda each: len(str(each)))
    name = ".".join(path.relative_to(base).parts).partition(".cpython-")[0].partition(".abi3.")[0]
    importlib.import_module(name)
    print(name)
"""


@pytest.fixture(scope="module", params=[OTHER, pytest.param(OWN, marks=pytest.mark.proof)])
def machine(request):
    return request.param


@pytest.fixture(scope="module")
def root(machine, tmp_path_factory):
    """The files of Python and of the dependencies for a machine."""
    if not shutil.which("apt-get"):
        pytest.skip("no apt-get to download packages")
    folder = tmp_path_factory.mktemp("image") / "root"
    for layer in image.layers(machine):
        shutil.copytree(layer, folder, symlinks=True, dirs_exist_ok=True)
    return folder


@pytest.mark.slow
@pytest.mark.builds("other_image")
def test_image_has_all_libraries_and_of_its_machine(root, machine):
    found = {path: elf.read(path) for path in root.rglob("*") if path.is_file()}
    programs = {path: program for path, program in found.items() if program}
    assert {program.machine for program in programs.values()} == {machine}
    names = {path.name for path in programs}
    assert {image.PYTHON, "libc.so.6", "libssl.so.3"} <= names
    assert {library for program in programs.values() for library in program.libraries} <= names


@pytest.mark.slow
@pytest.mark.builds("other_image")
def test_image_names_its_debian_packages(root):
    packages = {path.name for path in (root / debian.RECORDS).iterdir()}
    assert {"libc6", "libstdc++6", f"{image.PYTHON}-minimal", f"lib{image.PYTHON}-stdlib"} <= packages
    assert all((root / debian.DOCS / name / "copyright").is_file() for name in packages)


@pytest.mark.slow
@pytest.mark.long_story
@pytest.mark.builds("other_image")
def test_python_of_image_runs_dayfly_in_an_emulator(root, machine):
    emulator = shutil.which(f"qemu-{machine}-static")
    if not emulator:
        pytest.skip(f"no qemu-{machine}-static to run programs of the machine")
    variables = {
        "PYTHONHOME": str(root / "usr/local"),
        "PYTHONPATH": f"{root / image.SITE}:{ROOT / 'src'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SSL_CERT_FILE": str(root / image.CERTIFICATES),
    }

    def run(*arguments):
        command = [emulator, "-L", root, root / "usr/local/bin" / image.PYTHON, *arguments]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert run("-m", "dayfly", "--version") == f"dayfly {__version__}\n"
    assert run("-c", "import platform; print(platform.machine())") == f"{machine}\n"
    assert {"_ssl", "_sqlite3", "msgspec._core", "grpc._cython.cygrpc"} <= set(run("-c", MODULES).split())
    program = "import ssl, dayfly.operator.main; print(len(ssl.create_default_context().get_ca_certs()) > 9)"
    assert run("-c", program) == "True\n"


def test_headers_of_this_interpreter_name_machine_and_libraries():
    program = elf.read(Path(sys.executable).resolve())
    assert program.machine == platform.machine()
    assert "libc.so.6" in program.libraries


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60), b"\x7fELF\x02\x01" + bytes(60)]
)
def test_file_of_no_known_machine_has_no_headers(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert elf.read(tmp_path / "file") is None


def apt(tmp_path, monkeypatch, script):
    """An apt-get that does this, and an archive that uses it."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return debian.Archive("arm64", tmp_path / "state")


def test_missing_package_is_an_error_with_advice(tmp_path, monkeypatch):
    script = 'case "$*" in *print-uris*) echo "E: Unable to locate package python3.99" >&2; exit 100; esac'
    archive = apt(tmp_path, monkeypatch, script)
    with pytest.raises(build.UnavailableError, match=r"Unable to locate package python3\.99; .*/etc/apt"):
        archive.find(["python3.99"])


def test_apt_that_never_ends_is_an_error(tmp_path, monkeypatch):
    archive = apt(tmp_path, monkeypatch, "exec sleep 1000")
    monkeypatch.setattr(debian, "DOWNLOAD_S", 0.1)
    with pytest.raises(build.UnavailableError, match="has not ended within"):
        archive.find(["python3.11"])


def test_machine_without_apt_cannot_build_with_debian(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.UnavailableError, match=r"no apt-get .* arm64; run it on Debian"):
        debian.Archive("arm64", tmp_path / "state").find(["python3.11"])


def test_each_call_of_apt_has_a_separate_state(tmp_path, monkeypatch):
    archive = apt(tmp_path, monkeypatch, "")
    archive.find(["one"])
    (tmp_path / "root").mkdir()
    archive.unpack(["one"], tmp_path / "root")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 3
    for call in calls:
        assert f"-oDir::State={tmp_path / 'state'} " in call
        assert f"-oDir::State::status={tmp_path / 'state' / 'status'} " in call
        assert f"-oDir::Cache={tmp_path / 'state'} " in call


def test_version_changes_with_a_dependency_and_not_with_a_mirror(tmp_path, monkeypatch):
    archive = apt(tmp_path, monkeypatch, f'case "$*" in *print-uris*) cat {tmp_path}/planned; esac')

    def find(planned):
        (tmp_path / "planned").write_text(planned)
        return archive.find(["one"])

    first = find("'http://a/one_1.deb' one_1.deb 10 SHA256:1\n'http://a/two_1.deb' two_1.deb 10 SHA256:2\n")
    assert find("'http://b/two_1.deb' two_1.deb 10 SHA256:2\n'http://b/one_1.deb' one_1.deb 10 SHA256:1\n") == first
    assert find("'http://a/one_1.deb' one_1.deb 10 SHA256:1\n'http://a/two_2.deb' two_2.deb 10 SHA256:3\n") != first


def test_archive_for_two_machines_has_an_index_of_both(tmp_path):
    for name in ("common", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    layers, settings = [tmp_path / "common", tmp_path / "own"], images.Settings(user="1")
    both = [images.Image(machine, layers, settings) for machine in images.ARCHITECTURES]
    archive = images.write("dayfly.test/both:1", both, to=tmp_path / "both.tar")

    def read(path):
        return json.load(opened.extractfile(path))

    with tarfile.open(archive) as opened:
        (named,) = read("index.json")["manifests"]
        assert named["annotations"] == {"io.containerd.image.name": "dayfly.test/both:1"}
        found = {}
        for each in read(f"blobs/sha256/{named['digest'][7:]}")["manifests"]:
            manifest = read(f"blobs/sha256/{each['digest'][7:]}")
            config = read(f"blobs/sha256/{manifest['config']['digest'][7:]}")
            found[each["platform"]["architecture"]] = (config["architecture"], len(manifest["layers"]))
    assert found == {"amd64": ("amd64", 2), "arm64": ("arm64", 2)}
    images.write("dayfly.test/both:1", both, to=tmp_path / "again.tar")
    assert archive.read_bytes() == (tmp_path / "again.tar").read_bytes()
