"""The same worlds, driven by Hypothesis: fewer schedules, but what it finds it makes short."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.simulator.cluster import Cluster
from tests.simulator.machine import Machine
from tests.simulator.world import Simulation

# Random choices within the rules come from this strategy, so that they shrink together with the rules.
chance = st.integers(0, 99)


class _Days(RuleBasedStateMachine):
    kind: type[Simulation]

    @initialize(seed=st.integers(0, 1_000))
    def begin(self, seed):
        self.story = []
        self.simulation = self.kind(seed, story=self.story)

    @rule(seed=chance)
    def a_server_goes_on(self, seed):
        rng = self.simulation.rng
        rng.seed(seed)
        self.simulation.take_turn(rng.choice(self.simulation.servers))

    @rule(seed=chance)
    def something_outside_goes_on(self, seed):
        self.simulation.rng.seed(seed)
        self.simulation.step()

    @rule(seed=chance)
    def time_goes_on(self, seed):
        self.simulation.rng.seed(seed)
        self.simulation.wait()

    @rule(seed=chance)
    def the_owner_wants_something(self, seed):
        self.simulation.rng.seed(seed)
        self.simulation.owner()

    @rule(seed=chance)
    def a_server_breaks(self, seed):
        self.simulation.rng.seed(seed)
        self.simulation.server_fault()

    @rule(seed=chance)
    def the_host_breaks(self, seed):
        self.simulation.rng.seed(seed)
        self.simulation.fault()

    @invariant()
    def the_ledger_holds_the_truth(self):
        stored = self.simulation.ledger.load(self.simulation.uid)
        assert (stored.run if stored else None) == (None if self.simulation.oracle.gone else self.simulation.oracle.run)

    def teardown(self):
        if hasattr(self, "simulation"):
            self.simulation.finish()
            self.simulation.ledger.close()


class MachineDays(_Days):
    kind = Machine


class ClusterDays(_Days):
    kind = Cluster


MODEST = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMachineDays = MachineDays.TestCase
TestMachineDays.settings = MODEST
TestClusterDays = ClusterDays.TestCase
TestClusterDays.settings = MODEST
