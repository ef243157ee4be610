"""Whom a namespace lets fork what it has."""

from __future__ import annotations

import pytest
from rig.alone import Alone

from dayfly.operator.forks.namespaces import leave
from dayfly.operator.pods.namespaces import NotGrantedError
from kube.fake import run


def played(story):
    async def main():
        return await story()

    return run(main())


class TestLeave:
    @pytest.mark.parametrize(
        ("annotations", "labels", "given"),
        [
            ({}, {}, None),
            ({"dayfly.dev/sandboxes-from": "other, shops"}, {}, None),
            ({"dayfly.dev/sandboxes-from": "other, shop"}, {}, (False, False)),
            ({"dayfly.dev/sandboxes-from": "shop"}, {"dayfly.dev/forks": "free"}, (False, True)),
            ({"dayfly.dev/sandboxes-from": "shop"}, {"dayfly.dev/forks": "no"}, (False, False)),
        ],
    )
    def test_another_namespace_has_to_name_the_sandboxes(self, annotations, labels, given):
        async def story():
            alone = Alone()
            meta = {"name": "away", "annotations": annotations, "labels": labels}
            alone.ask("POST", "/api/v1/namespaces", {"metadata": meta})
            found = await leave(alone.caches.client, alone.run, "away")
            return found.home, found.free

        if given is None:
            with pytest.raises(NotGrantedError, match=r"annotate it dayfly\.dev/sandboxes-from=shop"):
                played(story)
        else:
            assert played(story) == given

    def test_its_own_namespace_is_home(self):
        async def story():
            alone = Alone()
            found = await leave(alone.caches.client, alone.run, "shop")
            return found.home, found.free

        assert played(story) == (True, False)
