"""An example of each type of the field reference, which has each of its fields once; a test reads all of them.

Fields that exclude each other are in separate examples, between lines of `---`.
"""

EXAMPLES = {
    "PluginSpec": """\
description: A database of the sandbox's own
runner: {image: "postgres:16"}
state: false
parent: {plugin: "postgres-server@1.0.0"}
inputs:
- {name: region, valueFromSandbox: true}
create:
- {name: make, script: "@{embed: ./make.sh}", outputs: [{name: url, valueFromPath: /tmp/url}]}
delete:
- {name: remove, script: "@{embed: ./remove.sh}"}
inventory:
- {name: look, script: "@{embed: ./look.sh}"}
""",
    "Runner": """\
image: postgres:16
namespace: dayfly-runners
podTemplateOverlay: |
  spec:
    serviceAccountName: databases
""",
    "Step": """\
name: make
inputs:
- {name: size, valueFromSandbox: true}
outputs:
- {name: url, valueFromPath: /tmp/url}
script: "@{embed: ./make.sh}"
retry: {idempotent: true}
timeouts: {run: 10m}
at: claim
---
name: make
command: [/usr/bin/tool, create, --size=$(SIZE)]
---
name: make
webhook: {method: POST, url: "https://api.example.com/databases"}
---
name: make
object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {greeting: hello}}}
""",
    "Input": """\
name: size
type: string
valueFromSandbox: true
required: false
default: small
secret: false
test: fixed
as: {env: SIZE}
---
name: url
valueFromStep: {name: make, output: url}
---
name: admin-url
valueFromParent: {step: start, output: url}
---
name: mode
value: fast
---
name: url
valueFrom: {resource: {name: db, outputKey: make.url}}
""",
    "SharedInput": """\
name: region
type: string
valueFromSandbox: true
required: false
default: north
secret: false
test: fixed
as: {env: REGION}
---
name: url
valueFromStep: {name: make, output: url}
steps: [seed, remove]
---
name: admin-url
valueFromParent: {step: start, output: url}
""",
    "Parent": """\
plugin: postgres-server@1.0.0
params: {version: "16", size: {valueFromParam: size}}
linger: 30m
capacity: 200
maxParents: 2
""",
    "ParentOutput": """\
step: start
output: url
""",
    "Output": """\
name: password
description: Of the owner of the database
type: string
valueFromPath: /tmp/password
sensitive: true
---
name: id
valueFromJSONPath: $.record.id
---
name: place
valueFromHeader: Location
---
name: status
valueFromStatus: true
---
name: password
valueFromSecret: {name: database-login, key: password}
""",
    "Webhook": """\
method: POST
url: https://api.example.com/v1
path: [zones, {$input: zone}]
query: {owner: {$env: DAYFLY_RESOURCE_ID}}
headers: {Authorization: {$secret: {name: api, key: token}, prefix: "Bearer "}}
body: {address: {$input: address}}
expect: {status: [201]}
poll: {until: {path: $.state, in: [done]}}
find: {query: {owner: {$env: DAYFLY_RESOURCE_ID}}}
tls: {ca: "@{embed: ./ca.pem}"}
idempotencyKey: X-Request-Id
timeouts: {answer: 20s}
""",
    "KubeObject": """\
manifest: {apiVersion: example.com/v1, kind: Database, spec: {size: small}}
set: {/spec/size: {input: size}}
ready: {condition: Ready}
failed: {condition: Failed}
---
remove: make
""",
    "Retry": """\
idempotent: true
limit: 3
backoff: 10s
""",
    "Timeouts": """\
schedule: 5m
pull: 10m
run: 30m
grace: 20s
""",
    "StepOutput": """\
name: make
output: url
""",
    "HookSource": """\
resource: {name: db, outputKey: make.url}
---
fork: {forkOf: {kind: Deployment, namespace: shop, name: web}, expression: "{{.Service.Host}}"}
""",
    "Injection": """\
env: PEOPLE
path: /tmp/people.json
""",
    "FromSecret": """\
name: database-login
key: password
---
nameFromJSONPath: $.status.binding.name
key: password
""",
    "Expect": """\
status: [200, 404]
failed: [503]
""",
    "Poll": """\
status: [202]
location: $.links.job
until: {path: $.state, in: [done]}
failed: {path: $.state, in: [failed, cancelled]}
""",
    "Find": """\
path: [zones, {$input: zone}]
query: {owner: {$env: DAYFLY_RESOURCE_ID}}
when: {path: $.state, in: [done]}
""",
    "Tls": """\
ca: "@{embed: ./ca.pem}"
""",
    "WebhookTimeouts": """\
connect: 5s
answer: 20s
""",
    "ReadyRule": """\
condition: Ready
status: "True"
---
when: {path: $.status.phase, in: [Running]}
---
contract: true
""",
    "ResourceOutput": """\
name: db
outputKey: make.url
""",
    "ForkExpression": """\
forkOf: {kind: Deployment, namespace: shop, name: web}
expression: "http://{{.Service.Host}}:{{.Service.Port}}"
""",
    "Comparison": """\
path: $.state
in: [done, archived]
""",
    "WorkloadRef": """\
kind: Deployment
namespace: shop
name: web
""",
    "SandboxSpec": """\
cluster: staging
description: The shop of one pull request
labels: {team: shop, pr: "17"}
ttl: {duration: 2d}
resources: [{name: db, plugin: database@1.0.0}]
forks: [{forkOf: {kind: Deployment, namespace: shop, name: web}}]
hooks: {postStart: [{name: warm, script: "@{embed: ./warm.sh}"}]}
runner: {image: "debian:12-slim"}
defaultRouteGroup: {endpoints: [{name: web, target: "http://web.shop.svc:8000"}]}
local:
- name: api
  from: {kind: Deployment, namespace: shop, name: api}
  mappings: [{port: 8000, toLocal: "localhost:8000"}]
---
cluster: staging
endpoints: [{name: web, host: web.shop.svc, port: 8000, protocol: http}]
virtual: [{name: web, workload: {kind: Deployment, namespace: shop, name: web}}]
middleware: [{name: overrides, match: [{workload: "*"}]}]
routing: {}
connection: {}
localMachineID: ada-laptop
disableSandboxTrafficManager: true
""",
    "Ttl": """\
duration: 2d
offsetFrom: updatedAt
""",
    "Fork": """\
name: web-preview
forkOf: {kind: Deployment, namespace: shop, name: web}
customizations: {env: [{name: MODE, value: preview}]}
endpoints: [{name: web, port: 8000, protocol: http}]
""",
    "Resource": """\
name: db
plugin: database@1.0.0
params: {size: large, network: {valueFrom: {resource: {name: net, outputKey: make.id}}}}
pool: never
---
name: db
spec: {create: [{name: make, script: "@{embed: ./make.sh}"}]}
""",
    "Hooks": """\
preStart: [{name: announce, script: "@{embed: ./announce.sh}"}]
postStart: [{name: warm, script: "@{embed: ./warm.sh}"}]
preStop: [{name: drain, script: "@{embed: ./drain.sh}"}]
postStop: [{name: report, script: "@{embed: ./report.sh}"}]
""",
    "DefaultRouteGroup": """\
endpoints: [{name: web, target: "http://web.shop.svc:8000"}]
""",
    "PortEndpoint": """\
name: web
host: web.shop.svc
port: 8000
protocol: http
""",
    "Customizations": """\
images: [{image: "shop/web:pr-17"}]
env: [{name: MODE, value: preview}]
patch: {type: strategic, value: "spec: {replicas: 1}"}
""",
    "Endpoint": """\
name: web
target: http://web.shop.svc:8000
""",
    "Image": """\
image: shop/web:pr-17
container: main
""",
    "Env": """\
name: DATABASE_URL
container: main
operation: upsert
valueFrom: {resource: {name: db, outputKey: make.url}}
---
name: MODE
value: preview
""",
    "Patch": """\
type: strategic
value: |
  spec: {template: {spec: {terminationGracePeriodSeconds: 5}}}
""",
    "EnvSource": """\
resource: {name: db, outputKey: make.url}
---
fork: {forkOf: {kind: Deployment, namespace: shop, name: api}, expression: "{{.Service.Host}}"}
---
configMap: {name: settings, key: mode}
---
secret: {name: login, key: password}
""",
    "KeyRef": """\
name: login
key: password
optional: true
""",
    "RouteGroupSpec": """\
cluster: staging
description: All of the shop's previews
labels: {team: shop}
match: {label: {key: team, value: "shop*"}}
ttl: {duration: 2d}
endpoints: [{name: web, target: "http://web.shop.svc:8000"}]
hooks: {postStop: [{name: report, script: "@{embed: ./report.sh}"}]}
runner: {image: "debian:12-slim"}
""",
    "GroupTtl": """\
duration: 2d
offsetFrom: noMatchedSandboxes
""",
    "GroupEndpoint": """\
name: web
target: http://web.shop.svc:8000
cluster: staging
""",
    "ResourcePoolSpec": """\
cluster: staging
plugin: database@1.0.0
params: {size: large, owner: null}
ready: 5
maxAge: 24h
schedule: [{cron: "0 7 * * 1-5", duration: 11h, ready: 20}]
---
plugin: database
auto: {hitRatio: 0.99, min: 2, max: 40}
""",
    "LeakCheckSpec": """\
cluster: local
plugin: bucket@1.0.0
params: {region: eu-central-1}
every: 1h
grace: 24h
action: report
pricePerHour: 0.05 EUR
""",
    "PoolAuto": """\
hitRatio: 0.99
min: 2
max: 40
""",
    "PoolWindow": """\
cron: "0 7 * * 1-5"
duration: 11h
ready: 20
""",
    "LifecycleHookSpec": """\
selector: {apiVersion: apps/v1, kind: Deployment, labels: {database: wanted}}
started: {condition: Available}
stopped: {when: {path: $.status.replicas, in: [0]}}
hold: {annotation: example.com/paused, value: "true"}
runner: {image: "postgres:16"}
preStart: [{name: make, script: "@{embed: ./make.sh}"}]
postStart: [{name: announce, script: "@{embed: ./announce.sh}"}]
preStop: [{name: drain, script: "@{embed: ./drain.sh}"}]
postStop: [{name: remove, undoes: make, script: "@{embed: ./remove.sh}"}]
""",
    "Selector": """\
apiVersion: apps/v1
kind: Deployment
namespaces: [shop]
labels: {database: wanted}
""",
    "Hold": """\
annotation: example.com/paused
value: "true"
---
path: /spec/paused
value: true
""",
    "HookStep": """\
name: remove
inputs: [{name: who, valueFromTarget: $.metadata.name}]
outputs: [{name: log, valueFromPath: /tmp/log}]
script: "@{embed: ./remove.sh}"
retry: {backoff: 10s}
timeouts: {run: 10m}
undoes: make
---
name: make
command: [/usr/bin/tool, create, $(WHO)]
---
name: make
webhook: {method: POST, url: "https://api.example.com/databases"}
---
name: make
object: {manifest: {apiVersion: v1, kind: ConfigMap, data: {greeting: hello}}}
""",
    "HookInput": """\
name: who
type: string
valueFromTarget: $.metadata.name
as: {env: WHO}
---
name: mode
value: fast
---
name: url
valueFromStep: {name: make, output: url}
""",
    "Workload": """\
kind: Deployment
name: web
namespace: shop
command: [sh, -c, "exec python3 -m http.server $PORT"]
env: {MODE: shared}
port: 8000
routedPort: 9000
workdir: /srv/web
""",
}
