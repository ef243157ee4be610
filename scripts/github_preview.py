#!/usr/bin/env python3
"""The script of action.yml: a sandbox for each pull request of a GitHub repository.

It reads the event that GitHub describes in $GITHUB_EVENT_PATH, and the inputs of the action in PREVIEW_... variables.
"""

import dataclasses
import html
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from dayfly.client import Client, DayflyError, Exit, files
from dayfly.spec.errors import SpecError

VARIABLE = "@{pr}"
PAGE_SIZE = 100


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of the action."""

    file: str
    name: str
    variables: list[str]
    timeout: str
    comments: bool

    @classmethod
    def read(cls) -> "Inputs":
        """Return the inputs of the environment."""
        given = os.environ
        for name, variable in {"url": "DAYFLY_URL", "api-key": "DAYFLY_API_KEY"}.items():
            if not given[variable]:
                sys.exit(
                    f"input {name}: it is empty; jobs for pull requests from forks have no secrets of the repository"
                )
        if VARIABLE not in given["PREVIEW_NAME"]:
            sys.exit(f"input name: {given['PREVIEW_NAME']!r} lacks {VARIABLE}; all pull requests would share a sandbox")
        variables = [line.strip() for line in given["PREVIEW_SET"].splitlines() if line.strip()]
        comments = given["PREVIEW_COMMENT"].lower()
        if comments not in ("true", "false"):
            sys.exit(f"input comment: {given['PREVIEW_COMMENT']!r} is neither true nor false")
        return cls(
            given["PREVIEW_FILE"], given["PREVIEW_NAME"], variables, given["PREVIEW_TIMEOUT"], comments == "true"
        )

    def sandbox(self, number: int) -> str:
        """Return the name of the sandbox of a pull request."""
        return self.name.replace(VARIABLE, str(number))

    def number(self, sandbox: str) -> int | None:
        """Return the pull request of a sandbox; None if the name has another form."""
        before, _, after = self.name.partition(VARIABLE)
        found = sandbox.removeprefix(before).removesuffix(after)
        return int(found) if found.isascii() and found.isdecimal() and self.sandbox(int(found)) == sandbox else None


class GitHubError(Exception):
    """GitHub refuses a request, or does not answer. The message has the remedy."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class GitHub:
    """The REST API of GitHub for one repository."""

    def __init__(self) -> None:
        self._repository = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}"

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; `path` is below the repository.

        Raises:
            GitHubError: GitHub refuses it, or does not answer.
        """
        headers = {"Authorization": f"Bearer {os.environ['PREVIEW_TOKEN']}", "Accept": "application/vnd.github+json"}
        data = None if body is None else json.dumps(body).encode()
        sent = urllib.request.Request(f"{self._repository}/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(sent, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            need = "read" if method == "GET" else "write, or set the input comment to false"
            advice = f"give the job the permission pull-requests: {need}"
            raise GitHubError(
                f"GitHub refuses {method} {path} ({error.code} {error.reason}); {advice}", error.code
            ) from None
        except OSError as error:
            raise GitHubError(f"GitHub does not answer {method} {path} ({error}); run the job again") from None

    def is_open(self, number: int) -> bool:
        """Return whether a pull request is open.

        Raises:
            GitHubError: the token may not read pull requests. In a private repository, GitHub then reports that
                there is no such pull request, and no such list.
        """
        try:
            return bool(self.request("GET", f"pulls/{number}")["state"] == "open")
        except GitHubError as error:
            if error.status != 404:
                raise
            self.request("GET", "pulls?per_page=1")
            return False

    def comment(self, number: int, marker: str, text: str) -> None:
        """Write the comment with this marker, or change it."""
        body = {"body": f"{marker}\n{text}"}
        for page in range(1, 100):
            found = self.request("GET", f"issues/{number}/comments?per_page={PAGE_SIZE}&page={page}")
            for each in found:
                if each["body"].startswith(marker):
                    self.request("PATCH", f"issues/comments/{each['id']}", body)
                    return
            if len(found) < PAGE_SIZE:
                break
        self.request("POST", f"issues/{number}/comments", body)


def dayfly(*arguments: str) -> int:
    """Run the command line, and return its exit code."""
    return subprocess.run([sys.executable, "-m", "dayfly", *arguments], check=False).returncode


def create(inputs: Inputs, number: int) -> tuple[int, str]:
    """Create or update the sandbox; return the exit code and the text of the comment."""
    name = inputs.sandbox(number)
    values = [f"pr={number}", *inputs.variables]
    if (named := name_in_file(inputs.file, values)) not in ("", name):
        problem = f"the file names the sandbox {named!r}, and the input name is {inputs.name}; both must be the same"
        sys.stdout.write(f"::error::{inputs.file}: {problem}\n")
        return Exit.USAGE, f"Sandbox `{name}` was not created; see the log of this job."
    sets = [word for each in values for word in ("--set", each)]
    code = dayfly("sandbox", "apply", "-f", inputs.file, *sets, "--timeout", inputs.timeout)
    with Client() as client:
        try:
            found = client.sandboxes.get(name)
        except DayflyError as fault:
            return code or int(fault.code), f"Sandbox `{name}` was not created; see the log of this job."
    write_output(name=name, ready=str(found.status.ready).lower())
    rows = [f"| {as_text(each.name)} | {as_text(each.url)} |" for each in found.endpoints if each.url]
    table = "\n".join(["", "| endpoint | address |", "|---|---|", *rows]) if rows else ""
    state = "is ready" if found.status.ready else "is not ready"
    return code, f"Sandbox `{name}` {state}: {as_text(found.status.message)}\n{table}"


def name_in_file(file: str, values: list[str]) -> str:
    """Return the name of the sandbox in a file; empty if the file is invalid, which `dayfly sandbox apply` reports."""
    try:
        return files.read_names([file], values, "Sandbox")[0]
    except (SpecError, DayflyError, IndexError):
        return ""


def delete(inputs: Inputs, number: int) -> tuple[int, str]:
    """Delete the sandbox; return the exit code and the text of the comment."""
    name = inputs.sandbox(number)
    code = dayfly("sandbox", "delete", name, "--timeout", inputs.timeout)
    if code in (Exit.OK, Exit.NOT_FOUND):
        return 0, f"Sandbox `{name}` is deleted, with everything that it created."
    return code, f"Sandbox `{name}` is not deleted yet; see the log of this job."


def sweep(inputs: Inputs, github: GitHub) -> int:
    """Delete the sandboxes of closed pull requests. Fail if there was one, because its own job did not delete it."""
    with Client() as client:
        numbers = [(each.name, inputs.number(each.name)) for each in client.sandboxes.list()]
    left = [(name, number) for name, number in numbers if number is not None and not github.is_open(number)]
    for name, number in left:
        sys.stdout.write(f"::error::sandbox {name} outlived pull request {number}\n")
        delete(inputs, number)
    return 1 if left else 0


def as_text(text: str) -> str:
    """Return text of other people for a table of a comment: without markup, mentions and links to elsewhere."""
    return f"<code>{html.escape(' '.join(text.split())).replace('|', '&#124;').replace('@', '&#64;')}</code>"


def write_output(**values: str) -> None:
    """Write outputs of the step."""
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())


def main() -> int:
    """Handle the event, and return the exit code."""
    inputs, github = Inputs.read(), GitHub()
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    if "pull_request" not in event:
        return sweep(inputs, github)
    number = int(event["pull_request"]["number"])
    code, text = delete(inputs, number) if event["action"] == "closed" else create(inputs, number)
    if inputs.comments:
        github.comment(number, f"<!-- dayfly {inputs.sandbox(number)} -->", text)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DayflyError, GitHubError) as fault:
        sys.exit(f"::error::{fault}")
