#!/usr/bin/env python3
"""Take the screenshots of the page for the docs, with real sandboxes in a real browser: docs/page-*.png.

Needs the page built, chromium, and the environment of `make dev`: .venv/bin/python scripts/pictures.py
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.page.browser import chromium, visit  # noqa: E402 - found beside this script

SIZE = {"width": 1280, "height": 640}
OWNERS = ("ann", "ben", "eve")
TEAMS = ("checkout", "payments", "search", "catalog")
SHOP = """\
name: shop-db@2.1.0
spec:
  description: A database with the shop's tables
  runner: {image: none}
  create:
  - name: provision
    inputs: [{name: size, valueFromSandbox: true}]
    outputs:
    - {name: host, valueFromPath: /tmp/host}
    - {name: password, valueFromPath: /tmp/password, sensitive: true}
    script: |
      #!/bin/sh
      echo asking for a database
      printf db-17.shop >/tmp/host
      printf s3cret >/tmp/password
      echo made db-17.shop
  - name: migrate
    inputs:
    - {name: host, valueFromStep: {name: provision, output: host}}
    - {name: password, valueFromStep: {name: provision, output: password}, as: {env: PASSWORD}}
    outputs: [{name: schema, valueFromPath: /tmp/schema}]
    script: "#!/bin/sh\\nsleep 1; printf v42 >/tmp/schema"
  - name: seed
    inputs: [{name: schema, valueFromStep: {name: migrate, output: schema}}]
    script: "#!/bin/sh\\nsleep 600"
  delete:
  - name: drop
    inputs: [{name: host, valueFromStep: {name: provision, output: host}}]
    script: "#!/bin/sh\\nexit 0"
---
name: events@1.0.0
spec:
  runner: {image: none}
  create:
  - name: stream
    outputs: [{name: url, valueFromPath: /tmp/url}]
    script: "#!/bin/sh\\nprintf nats://events/17 >/tmp/url"
  delete:
  - name: remove
    script: "#!/bin/sh\\nexit 0"
---
name: broken@1.0.0
spec:
  runner: {image: none}
  create:
  - name: make
    script: "#!/bin/sh\\necho no such bucket >&2; exit 3"
---
kind: Deployment
name: web
namespace: default
command: ["sleep", "3600"]
---
name: shop-pr-1842
spec:
  cluster: local
  description: The shop with a discount, for review
  labels: {team: checkout, owner: ann, pr: "1842"}
  ttl: {duration: 2d}
  resources:
  - {name: db, plugin: shop-db, params: {size: small}}
  - {name: events, plugin: events}
  forks:
  - forkOf: {kind: Deployment, namespace: default, name: web}
    customizations:
      env:
      - {name: DB_HOST, valueFrom: {resource: {name: db, outputKey: provision.host}}}
      - {name: EVENTS, valueFrom: {resource: {name: events, outputKey: stream.url}}}
"""


def other(number: int) -> str:
    team, plugin = TEAMS[number % len(TEAMS)], "broken" if number == 5 else "events"
    ttl = f", ttl: {{duration: {number + 1}h}}" if number % 3 else ""
    name = f"{team}-pr-{1830 + number}"
    labels = f'team: {team}, owner: {OWNERS[number % len(OWNERS)]}, pr: "{1830 + number}"'
    spec = f"{{cluster: local, labels: {{{labels}}}, resources: [{{name: r, plugin: {plugin}}}]{ttl}}}"
    return f"---\nname: {name}\nspec: {spec}\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "DAYFLY_HOME": f"{folder}/home"}

        def dayfly(*words: str) -> str:
            done = subprocess.run(
                [ROOT / "dayfly", *words], env=environment, cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.stderr.write(done.stderr)
            return done.stdout.strip()

        Path(folder, "all.yaml").write_text(SHOP + "".join(other(n) for n in range(9)))
        dayfly("up", "--detach", "--port", "0")
        try:
            dayfly("apply", "-f", "all.yaml", "--wait=false")
            link = dayfly("page", "--no-open")
            with chromium() as browser, visit(browser, re.match(r"http://[^/]+", link)[0], link, viewport=SIZE) as seen:
                page = seen.page
                page.wait_for_selector("tr:has-text('shop-pr-1842'):has-text('3/5')")
                page.screenshot(path=ROOT / "docs" / "page-list.png")
                seen.open("/page/sandboxes/shop-pr-1842?unit=db%2Fprovision", ".log pre:has-text('made')")
                page.set_viewport_size({"width": 1360, "height": 820})
                page.wait_for_timeout(300)
                page.screenshot(path=ROOT / "docs" / "page-sandbox.png")
        finally:
            for name in re.findall(r"^name: (\S+-pr-\d+)$", Path(folder, "all.yaml").read_text(), re.MULTILINE):
                dayfly("abandon", name, "--force", "--reason", "a picture was taken")
            dayfly("down")


if __name__ == "__main__":
    main()
