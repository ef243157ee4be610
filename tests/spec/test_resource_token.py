"""Tokens of resources: only the holder of a key can make one, and for one resource of one host."""

import pytest

from dayfly.spec.resource_token import KEY_BYTES, resource_token, verified_host

KEY, OTHER_KEY = b"k" * KEY_BYTES, b"o" * KEY_BYTES
ID = "0123456789abcdef0123456789"
TOKEN = resource_token(KEY, "host1", ID)


def test_token_names_the_host_that_made_it():
    assert verified_host(KEY, TOKEN, ID) == "host1"


@pytest.mark.parametrize(
    ("key", "token", "resource"),
    [
        (OTHER_KEY, TOKEN, ID),
        (KEY, TOKEN, ID[:-1] + "8"),
        (KEY, TOKEN, ""),
        (KEY, TOKEN.replace("host1", "host2"), ID),
        (KEY, TOKEN[:-1], ID),
        (KEY, TOKEN + "0", ID),
        (KEY, TOKEN.upper(), ID),
        (KEY, "host1", ID),
        (KEY, "", ID),
        (KEY, "\u00e9." + TOKEN, ID),
    ],
)
def test_token_of_another_key_resource_or_host_is_refused(key: bytes, token: str, resource: str):
    assert verified_host(key, token, resource) == ""


def test_token_is_a_valid_label_and_tag():
    assert len(TOKEN) <= 63
    assert TOKEN.replace(".", "").isalnum()
