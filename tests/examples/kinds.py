"""What each example is: what it needs, which steps it has, and how to see what it left behind."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dayfly.cli import files
from dayfly.spec import documents
from examples.home import ROOT

FOLDER = ROOT / "examples"

# Every example with its create steps, in their order.
STEPS = {
    "sqlite-notes": ("provision", "schema-and-seed"),
    "python-step": ("register",),
    "terraform": ("apply",),
    "postgres-schema": ("provision", "seed"),
    "s3-bucket": ("provision", "seed"),
    # Its steps are no scripts: what befalls them is tried in tests/webhook and tests/embedded/test_webhooks.py.
    "webhook-dns": (),
}
# What one machine cannot carry out: these live their lives in tests/cluster.
IN_A_CLUSTER = (
    "minicluster",
    "mixed-tenant",
    "object-claim",
    "object-database",
    "object-job",
    "object-workflow",
    "service-binding",
    "v1-plugin",  # also on one machine, in test_v1.py
    "volume-backup",
)


@dataclass
class Example:
    """`left` lists what is there in the outside world; an example that has cleaned up leaves nothing."""

    name: str
    sandbox: str
    sets: Mapping[str, str]
    environment: Mapping[str, str]
    left: Callable[[], list[str]]

    def arguments(self, *sources: Path) -> tuple[str, ...]:
        """`-f` and `--set` for files of this example, by default its folder."""
        words = [word for source in sources or (FOLDER / self.name,) for word in ("-f", str(source))]
        return (*words, *(word for name, value in self.sets.items() for word in ("--set", f"{name}={value}")))

    def changed(
        self, into: Path, step: str, change: Callable[[str], str], *, reporting: bool = True
    ) -> tuple[str, ...]:
        """As `arguments`, with one step's script changed. The changed plugin is written to the folder `into`.

        Without `reporting` the step's outputs are looked for where nothing is, so that nobody ever gets to know them.
        """
        (wished,) = files.load([str(FOLDER / self.name / "plugin.yaml")], [])
        plugin = documents.export(wished.wish)
        found = [each for each in plugin["spec"]["create"] if each["name"] == step]
        assert len(found) == 1, f"{self.name} has no create step {step}"
        before = found[0]["script"]
        found[0]["script"] = change(before)
        assert found[0]["script"] != before, "the change finds nothing to change"
        if not reporting:
            for output in found[0].get("outputs", ()):
                output["valueFromPath"] = f"/tmp/nothing/{output['name']}"
        target = into / "plugin.json"
        target.write_text(json.dumps(plugin))
        others = [path for path in sorted((FOLDER / self.name).glob("*.yaml")) if path.name != "plugin.yaml"]
        return self.arguments(target, *others)


def failing(script: str) -> str:
    """The script, which does all its work and then fails."""
    return script + ("\nraise SystemExit(7)\n" if _is_python(script) else "\nexit 7\n")


def waiting(script: str, step: str, record: Path, gate: Path) -> str:
    """The script, which first adds its name to `record` and at the end says so there, then waits for the file `gate`."""
    first, _, rest = script.partition("\n")
    if _is_python(script):
        begin = f"open({str(record)!r}, 'a').write('{step} begins\\n')"
        end = (
            f"import time\nopen({str(record)!r}, 'a').write('{step} waits\\n')\n"
            f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)"
        )
    else:
        begin = f"echo '{step} begins' >>'{record}'"
        end = f"echo '{step} waits' >>'{record}'\nwhile [ ! -e '{gate}' ]; do sleep 0.02; done"
    return f"{first}\n{begin}\n{rest}\n{end}\n"


def _is_python(script: str) -> bool:
    return "python" in script.partition("\n")[0]
