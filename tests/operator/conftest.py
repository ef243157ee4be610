"""Fixtures of the operator's tests."""

import time

import pytest


@pytest.fixture
def story(tmp_path, monkeypatch):
    """Play a story with a cluster and a server in virtual time."""
    from tests.operator.rig import control_plane as planes
    from tests.operator.rig.world import live

    from dayfly.server.runs import group_sweep
    from dayfly.server.sync import host_sync
    from dayfly.server.sync.agents import agent_service

    def play(tell, *, dialling: bool = True, born=planes.world):
        async def told(world):
            monkeypatch.setattr(time, "time_ns", lambda: world.now() * 1_000_000)
            # Work takes no virtual time; a share of a real processor's time would be random. So idle polls, which are most of a
            # story's cost, are less frequent.
            for module in (host_sync, group_sweep):
                monkeypatch.setattr(module, "PAUSE_PER_WORK", 0)
                monkeypatch.setattr(module, "ROUND_INTERVAL_S", 10.0)
            monkeypatch.setattr(group_sweep, "SHORT_PAUSE_PER_WORK", 0)
            # One replica notifies itself.
            monkeypatch.setattr(agent_service, "POLL_INTERVAL_S", 30.0)
            plane = planes.ControlPlane(world, tmp_path / "control.db")
            if dialling:
                planes.joined(world, plane)
            await plane.start()
            try:
                await plane.must("PUT", "clusters/east", {})
                await plane.agents.load_mailboxes()
                world.start()
                await tell(world, plane)
            finally:
                world.respawn = False
                for process in world.processes:
                    await process.end()
                await plane.end()

        return live(born, told)

    return play
