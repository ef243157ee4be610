"""Each example: its requirements, its steps, and how to find its leftovers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.examples.home import ROOT

from dayfly.client import files
from dayfly.spec import documents

FOLDER = ROOT / "examples"

# Every example with its create steps, in their order.
STEPS = {
    "sqlite-notes": ("provision", "schema-and-seed"),
    "python-step": ("register",),
    "terraform": ("apply",),
    "postgres-schema": ("provision", "seed"),
    "s3-bucket": ("provision", "seed"),
    "pooled-bucket": ("provision", "prefix"),
    # It has no scripts: tests/webhook and tests/embedded/test_webhooks.py test faults of its steps.
    "webhook-dns": (),
}
# Examples that one machine cannot run: tests/cluster plays them.
IN_A_CLUSTER = (
    "minicluster",
    "mixed-tenant",
    "object-claim",
    "object-database",
    "object-job",
    "object-workflow",
    "pooled-environment",
    "service-binding",
    "v1-plugin",  # also on one machine, in test_v1.py
    "volume-backup",
    "k8s-apply",
)
# Examples that need a pool: test_pools.py and test_parents.py run them.
WITH_A_POOL = ("pytest-pool", "pooled-postgres")

# The gallery: its lives belong to the proof. `make test` plays one life of all of them together.
GALLERY = {
    "postgres-database": ("provision", "schema", "seed"),
    "mariadb-database": ("provision", "seed"),
    "redis-acl": ("provision",),
    "nats-stream": ("stream", "consumer"),
    "vault-secret": ("role", "credentials"),
    "sqs-queue": ("provision",),
    "s3-seed": ("provision-s3-bucket", "seed-s3-bucket"),
}


@dataclass
class Example:
    """`left` lists what is there in the outside world; an example that has cleaned up leaves nothing.

    `use` does with a sandbox's outputs what an application would.
    """

    name: str
    sandbox: str
    sets: Mapping[str, str]
    environment: Mapping[str, str]
    left: Callable[[], list[str]]
    use: Callable[[Mapping[str, str]], object] = lambda outputs: None

    def arguments(self, *sources: Path) -> tuple[str, ...]:
        """`-f` and `--set` for files of this example, by default its folder."""
        words = [word for source in sources or (FOLDER / self.name,) for word in ("-f", str(source))]
        return (*words, *(word for name, value in self.sets.items() for word in ("--set", f"{name}={value}")))

    def renamed(self, into: Path, name: str) -> tuple[str, ...]:
        """As `arguments`, for a sandbox of another name. It is written to the folder `into`."""
        sets = [f"{key}={value}" for key, value in self.sets.items()]
        (wished,) = files.load([str(FOLDER / self.name / "sandbox.yaml")], sets)
        target = into / f"{name}.json"
        target.write_text(json.dumps({**documents.export(wished.content), "name": name}))
        others = [path for path in sorted((FOLDER / self.name).glob("*.yaml")) if path.name != "sandbox.yaml"]
        return self.arguments(target, *others)

    def with_param(self, into: Path, **params: str) -> tuple[str, ...]:
        """As `arguments`, with other params for the sandbox's one resource."""
        sets = [f"{key}={value}" for key, value in self.sets.items()]
        (wished,) = files.load([str(FOLDER / self.name / "sandbox.yaml")], sets)
        sandbox = documents.export(wished.content)
        (resource,) = sandbox["spec"]["resources"]
        resource["params"] = {**resource.get("params", {}), **params}
        target = into / "sandbox.json"
        target.write_text(json.dumps(sandbox))
        others = [path for path in sorted((FOLDER / self.name).glob("*.yaml")) if path.name != "sandbox.yaml"]
        return self.arguments(target, *others)

    def changed(
        self, into: Path, step: str | None, change: Callable[[str], str], *, reporting: bool = True
    ) -> tuple[str, ...]:
        """Return `arguments` with a changed script of one create step, or of all delete steps.

        The changed plugin is written to the folder `into`. Without `reporting` the outputs of the step are read from
        files that do not exist, so they are never known.
        """
        (wished,) = files.load([str(FOLDER / self.name / "plugin.yaml")], [])
        plugin = documents.export(wished.content)
        creating = [each for each in plugin["spec"]["create"] if each["name"] == step]
        found = creating if step else plugin["spec"]["delete"]
        assert found, f"{self.name} has no create step {step}"
        for each in found:
            before = each["script"]
            each["script"] = change(before)
            assert each["script"] != before, "the change finds nothing to change"
            for output in () if reporting else each.get("outputs", ()):
                output["valueFromPath"] = f"/tmp/nothing/{output['name']}"
        target = into / "plugin.json"
        target.write_text(json.dumps(plugin))
        others = [path for path in sorted((FOLDER / self.name).glob("*.yaml")) if path.name != "plugin.yaml"]
        return self.arguments(target, *others)


def failing(script: str) -> str:
    """The script, which does all its work and then fails."""
    return script + ("\nraise SystemExit(7)\n" if _is_python(script) else "\nexit 7\n")


def refusing(script: str) -> str:
    """The script, which fails at its first attempt whatever it did."""
    first, _, rest = script.partition("\n")
    if _is_python(script):
        again = 'import atexit, os\natexit.register(lambda: os.environ["DAYFLY_ATTEMPT"] == "1" and os._exit(7))'
    else:
        again = "[ \"$DAYFLY_ATTEMPT\" != 1 ] || trap 'exit 7' EXIT"
    return f"{first}\n{again}\n{rest}"


def waiting(script: str, step: str, record: Path, gate: Path) -> str:
    """Return the script with two additions: a line in `record` at its begin and end, and a wait for the file `gate`."""
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
