"""Sandboxes and plugins from YAML text, for the tests of this package."""

from tests.spec.marked_text import marked

import dayfly.compile
from dayfly.compile import Compiled, CompiledPool
from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import text
from dayfly.spec.plugin import Plugin
from dayfly.spec.resource_pool import ResourcePool
from dayfly.spec.sandbox import Sandbox


def read(yaml: str, file: str = ""):
    """Return the typed document of a text, and its parsed document."""
    document = text.parse_one(yaml, file=file)
    return documents.load(document), document


def plugin(yaml: str) -> Plugin:
    wish, _ = read(yaml)
    assert isinstance(wish, Plugin)
    return wish


def sandbox(yaml: str) -> Sandbox:
    wish, _ = read(yaml)
    assert isinstance(wish, Sandbox)
    return wish


def run(yaml: str, *plugins: str, **more) -> Compiled:
    """Compile a sandbox file with plugin files, all with their places."""
    wish, source = read(yaml, "box.yaml")
    found, sources = {}, {}
    for body in plugins:
        known, document = read(body, "plugin.yaml")
        found[known.name, known.version] = known
        sources[known.name, known.version] = document
    return dayfly.compile.compile(
        wish, found, uid="u1", routing_key="k3v9", source=source, plugin_sources=sources, **more
    )


PG = """\
name: pg@1.2.0
spec:
  runner:
    image: postgres:16
    namespace: signadot
    podTemplateOverlay: |
      spec:
        serviceAccountName: pg
  create:
  - name: provision
    inputs:
    - {name: size, valueFromSandbox: true}
    - {name: db-owner, valueFromSandbox: true, as: {path: /tmp/owner}}
    outputs:
    - {name: host, valueFromPath: /tmp/host}
    - {name: password, valueFromPath: /tmp/password, sensitive: true}
    script: |
      #!/bin/sh
      true
    retry: {idempotent: true, backoff: 30s}
    timeouts: {schedule: 5m, run: 2h}
  - name: seed
    inputs:
    - name: host
      valueFromStep: {name: provision, output: host}
      as: {env: PGHOST, path: /tmp/in/host}
    - name: password
      valueFromStep: {name: provision, output: password}
    script: |
      #!/bin/sh
      true
  delete:
  - name: drop
    inputs:
    - name: host
      valueFromStep: {name: provision, output: host}
    script: |
      #!/bin/sh
      true
"""

# Two steps, which a test completes.
QUEUE = """\
name: queue
spec:
  create:
  - name: make
    inputs:
    - {name: seed, valueFromSandbox: true}
    outputs:
    - {name: url, valueFromPath: /tmp/url}
    script: "#!/bin/sh"
  delete:
  - name: unmake
    inputs:
    - {name: url, valueFromStep: {name: make, output: url}}
    outputs:
    - {name: log, valueFromPath: /tmp/log}
    script: "#!/bin/sh"
"""


def box(spec: str) -> str:
    """Return a sandbox file whose spec starts in line 4 with the given lines, indented by two."""
    lines = "".join(f"  {line}\n" for line in spec.strip("\n").splitlines())
    return f"name: box\nspec:\n  cluster: c\n{lines}"


def refusal(yaml: str, *plugins: str) -> str:
    """Return the message for a sandbox that does not compile. Its place must be that of the sign §."""
    texts = {"box.yaml": yaml, "plugin.yaml": "".join(plugins)}
    try:
        run(yaml.replace("§", ""), *(body.replace("§", "") for body in plugins))
    except SpecError as fault:
        return _signed(fault, texts)
    raise AssertionError("was compiled")


def plugin_refusal(yaml: str) -> str:
    """Return the message for a plugin that may not be published, likewise."""
    wish, source = read(yaml.replace("§", ""), "plugin.yaml")
    assert isinstance(wish, Plugin)
    try:
        dayfly.compile.check_plugin(wish, source=source)
    except SpecError as fault:
        return _signed(fault, {"plugin.yaml": yaml})
    raise AssertionError("was accepted")


def _signed(fault: SpecError, texts: dict[str, str]) -> str:
    [(file, line, column)] = [(name, *marked(body)[1:]) for name, body in texts.items() if "§" in body]
    assert str(fault).startswith(f"{file}:{line}:{column}: {fault.path}: "), (str(fault), file, line, column)
    return str(fault).removeprefix(f"{file}:{line}:{column}: ")


def pool(params: str = "{}", plugin: str = "p", *, name: str = "warm", more: str = "") -> str:
    """Return the file of a pool with two ready members."""
    return f"kind: ResourcePool\nmetadata: {{name: {name}}}\nspec: {{plugin: {plugin}, ready: 2, params: {params}{more}}}\n"


def compiled_pool(yaml: str, body: str, **more) -> CompiledPool:
    """Compile the file of a pool with the file of its plugin."""
    wish, source = read(yaml, "pool.yaml")
    assert isinstance(wish, ResourcePool)
    return dayfly.compile.compile_pool(wish, plugin(body), source=source, **more)


def pool_refusals(yaml: str, body: str) -> list[str]:
    """Return the faults of a pool, without the name of its file."""
    try:
        compiled_pool(yaml, body)
    except SpecError as fault:
        return [f"{each.path}: {each.problem}" for each in (fault, *fault.others)]
    raise AssertionError("was compiled")


SCRIPT = "script: '#!/bin/sh'"


def step(name: str, *reads: str, work: str = SCRIPT, at: str = "") -> str:
    """Return one step of a plugin as YAML: `param` reads a param, `step.output` an output of another step.

    `^step.output` reads an output of the parent.
    """
    inputs = []
    for read_ in reads:
        producer, _, output = read_.removeprefix("^").partition(".")
        source = f"valueFromStep: {{name: {producer}, output: {output}}}" if output else "valueFromSandbox: true"
        if read_.startswith("^"):
            source = f"valueFromParent: {{step: {producer}, output: {output}}}"
        inputs.append(f"{{name: {read_.removeprefix('^').replace('.', '-')}, {source}}}")
    outputs = "" if "object:" in work else ", outputs: [{name: x, valueFromPath: /tmp/x}]"
    place = f", at: {at}" if at else ""
    return f"{{name: {name}, inputs: [{', '.join(inputs)}]{outputs}, {work}{place}}}"


def steps(create: list[str], delete: list[str] = (), *, name: str = "p@1.0.0", more: str = "") -> str:
    """Return the file of a plugin with these steps."""
    lists = "".join(
        f"  {word}:\n" + "".join(f"  - {each}\n" for each in items)
        for word, items in (("create", create), ("delete", delete))
        if items
    )
    return f"name: {name}\nspec:\n{more}{lists}"
