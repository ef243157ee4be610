"""`dayfly explain` and `dayfly schema` need no server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.command import refused

from dayfly.spec.schema import json_schema

if TYPE_CHECKING:
    from tests.cli.command import Cli


def test_a_field_with_fields_is_explained_with_them(cli: Cli):
    done = cli("explain", "plugin.create.retry")
    assert done.code == 0, done.err
    assert "Retries after failures." in done.out
    assert "idempotent   true or false" in done.out


def test_a_field_that_must_be_there_says_so(cli: Cli):
    done = cli("explain", "sandbox.cluster")
    assert done.out.splitlines()[:3] == ["Field:     cluster", "Holds:     text", "Default:   required"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("plugin.creat", 'no field "creat"; did you mean "create"?'),
        ("plugins", 'no kind "plugins"; did you mean "plugin"?'),
        ("sandbox.ttl.duration.s", '"s" is not a field: its parent has no fields'),
    ],
)
def test_a_wrong_word_gets_a_hint(cli: Cli, field: str, said: str):
    refused(cli("explain", field), 3, said)


@pytest.mark.parametrize("kind", json_schema.file_kinds())
def test_the_schema_is_printed_as_it_is(cli: Cli, kind: str):
    done = cli("schema", kind)
    assert (done.code, json.loads(done.out)) == (0, json_schema.file_schema(kind))
    assert not cli.home.exists()
