"""The files of a release: complete, and the same bytes from the same commit."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile

import pytest
from scripts import archives, release, sbom
from testcluster import images
from tests.policy.apiserver import ROOT

from deploy import debian, elf

METADATA = """\
Metadata-Version: 2.4
Name: Thing
Version: 1.2
{more}
"""


def image(tmp_path, **files):
    """Write an OCI archive with one layer."""
    layer = archives.tar({path.replace("__", "/"): text.encode() for path, text in files.items()})
    path = tmp_path / "image.tar"
    path.write_bytes(archives.oci_layout("1", b"{}", "application/json", [("application/tar", layer)]))
    return path


@pytest.mark.parametrize(
    ("more", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: other", "MIT OR Apache-2.0"),
        ("License: BSD", "BSD"),
        ("Classifier: License :: OSI Approved :: MIT License\nLicense: a long\n  text", "MIT License"),
        ("License: a long\n  text", ""),
    ],
)
def test_licence_of_a_package_is_that_of_its_metadata(tmp_path, more, licence):
    folder = "site__thing-1.2.dist-info"
    files = {f"{folder}__METADATA": METADATA.format(more=more), f"{folder}__licenses__LICENSE.txt": "text"}
    (found,) = sbom.image_packages(image(tmp_path, **files))
    assert found == sbom.Package("pypi", "thing", "1.2", licence, ("text",))


def test_debian_packages_are_those_that_the_image_names(tmp_path):
    fields = "Package: libc6\nArchitecture: arm64\nVersion: 2.36-9\nDescription: C\n"
    record, licences = f"{debian.RECORDS}/libc6", f"{debian.DOCS}/libc6/copyright"
    (found,) = sbom.image_packages(image(tmp_path, **{record: fields, licences: "text"}))
    assert found == sbom.Package("deb", "debian/libc6", "2.36-9", "see its text", ("text",), "arm64")
    assert found.purl == "pkg:deb/debian/libc6@2.36-9?arch=arm64"


def test_packages_of_an_index_are_those_of_all_images(tmp_path):
    made = []
    for machine, version in {"x86_64": "1", "aarch64": "2"}.items():
        path = tmp_path / machine / "a.dist-info" / "METADATA"
        path.parent.mkdir(parents=True)
        path.write_text(f"Metadata-Version: 2.4\nName: a\nVersion: {version}\n")
        made.append(images.Image(machine, [tmp_path / machine], images.Settings()))
    found = sbom.image_packages(images.write("dayfly.test/a:1", made, to=tmp_path / "image.tar"))
    assert [each.purl for each in found] == ["pkg:pypi/a@1", "pkg:pypi/a@2"]


def test_page_packages_are_those_of_the_bundle():
    lock = json.loads((ROOT / "page" / "package-lock.json").read_text())
    wanted = json.loads((ROOT / "page" / "package.json").read_text())
    found = {each.name for each in sbom.page_packages(lock)}
    assert wanted["dependencies"].keys() <= found
    assert not wanted["devDependencies"].keys() & found
    assert all(each.licence for each in sbom.page_packages(lock))


def test_bill_separates_contained_and_needed_packages():
    one, two = sbom.Package("npm", "@a/b", "1", "MIT"), sbom.Package("pypi", "c", "2")
    made = sbom.document("part", "1.0", [one], [two])
    assert [(each["purl"], each["scope"]) for each in made["components"]] == [
        ("pkg:npm/%40a/b@1", "required"),
        ("pkg:pypi/c@2", "excluded"),
    ]
    assert made["dependencies"][0]["dependsOn"] == ["pkg:npm/%40a/b@1", "pkg:pypi/c@2"]


def test_changes_are_the_entry_of_the_version():
    changelog = "# Changelog\n\n## 0.2.0 (2027-01-01)\n\nNew.\n\n## 0.1.0\n\nFirst.\n"
    assert release.changes(changelog, "0.2.0") == "## 0.2.0 (2027-01-01)\n\nNew.\n"
    assert release.changes(changelog, "0.1.0") == "## 0.1.0\n\nFirst.\n"
    with pytest.raises(SystemExit):
        release.changes(changelog, "0.3.0")


def test_archives_of_the_same_files_have_the_same_bytes():
    one, two = {"b": b"2", "a": b"1"}, {"a": b"1", "b": b"2"}
    assert archives.tgz(one) == archives.tgz(two)
    assert archives.untar(archives.tar(one)) == one


def run(*arguments, **variables):
    command = [sys.executable, ROOT / "scripts" / "release.py", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def test_refused_release_writes_nothing(tmp_path):
    ended = run(tmp_path / "out", "--ref", "no-such-tag")
    assert ended.returncode == 1
    assert "no-such-tag" in ended.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    assert run(tmp_path, "--ref", "HEAD").returncode == 1
    ended = run(tmp_path / "file", "--ref", "HEAD")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "is not an empty folder; remove it or choose another" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def machines_of_native_code(image):
    """Return, for each image of an archive, the machines of its programs and libraries, except the runners."""
    with tarfile.open(image) as archive:

        def read(digest):
            return archive.extractfile(f"blobs/{digest.replace(':', '/')}").read()

        (index,) = json.load(archive.extractfile("index.json"))["manifests"]
        found = {}
        for each in json.loads(read(index["digest"]))["manifests"]:
            machines = found.setdefault(each["platform"]["architecture"], set())
            for layer in json.loads(read(each["digest"]))["layers"]:
                with tarfile.open(fileobj=io.BytesIO(read(layer["digest"]))) as files:
                    own = [entry for entry in files if entry.isfile() and "/dayfly/runners/" not in entry.name]
                    programs = [elf.parse(files.extractfile(entry).read()) for entry in own]
                    machines |= {program.machine for program in programs if program}
        return found


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_two_builds_of_a_commit_have_the_same_bytes(tmp_path):
    """Each build has an empty cache of runner, page and image layers."""
    commit = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True).strip()
    sums = []
    for number in "12":
        ended = run(tmp_path / number, "--ref", commit, DAYFLY_CACHE=str(tmp_path / f"cache-{number}"))
        assert ended.returncode == 0, ended.stderr[-4000:]
        sums.append(ended.stdout)
    assert sums[0] == sums[1]
    names = {line.split()[1] for line in sums[0].splitlines()}
    assert {re.sub(r"-\d+\.\d+\.\d+", "", name) for name in names} == {
        *("dayfly-py3-none-any.whl", "dayfly.tar.gz", "dayfly-image.tar", "dayfly.tgz", "dayfly-chart.tar"),
        *("dayfly-manifests.tgz", "dayfly-docs.tgz", "dayfly-wheel.cdx.json", "dayfly-image.cdx.json"),
        *("dayfly-chart.cdx.json", "dayfly-licences.txt", "CHANGES.md", "install.yaml"),
    }
    (path,) = (tmp_path / "1").glob("*-image.tar")
    assert machines_of_native_code(path) == {"amd64": {"x86_64"}, "arm64": {"aarch64"}}
    (path,) = (tmp_path / "1").glob("*-image.cdx.json")
    components = json.loads(path.read_text())["components"]
    assert [each["purl"] for each in components if "licenses" not in each] == []
    (sdist,) = (tmp_path / "1").glob("dayfly-*.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(sdist.read_bytes())) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "runner/build.sh", "page/package-lock.json", "scripts/wheel.py"} <= inside
