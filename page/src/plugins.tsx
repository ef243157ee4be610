/** Plugins: their versions, and for each its params, steps as a graph, users and README. */
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { orgPath, plainCluster } from "./api";
import { GraphView } from "./graph";
import { useQuery } from "./live";
import { PastRuns } from "./past-runs";
import { stepUnits, params, plan, type PluginSpec, type Step } from "./plugin-model";
import { href, type Place } from "./router";
import { Table } from "./table";
import { logText, moment } from "./text";
import type { Plugin } from "./types";
import { Fault, Heading, Text } from "./ui";

type User = { name: string; sandbox: string; cluster: string };

export function Plugins({ place }: { place: Place }): JSX.Element {
  const { found, fault } = useQuery<Plugin[]>(`${orgPath("resource-plugins")}?version=all`, 0, 30_000);
  const chosen = place.parts[1] ?? "";
  const one = found?.find((each) => each.name === chosen);
  if (chosen) return <OnePlugin name={chosen} plugin={one ?? null} all={found} fault={fault} chosen={place.query.get("unit") ?? ""} />;
  return (
    <>
      <div class="head">
        <Heading title="Plugins">Plugins</Heading>
        <p class="count" role="status">
          {found ? `${found.length} versions` : "Loading…"}
        </p>
      </div>
      <Fault>{fault}</Fault>
      {found && !found.length && (
        <p class="nothing">
          No plugin is published. Publish one with: <code>{plainCluster() ? "kubectl apply" : "dayfly plugin apply"} -f FILE</code>
        </p>
      )}
      {found && found.length > 0 && (
        <Table
          caption="Plugins and their versions"
          rows={found}
          of={(each) => each.name}
          columns={[
            {
              title: "Plugin",
              cell: (each) => (
                <a href={href(["plugins", each.name])}>
                  <Text>{each.name}</Text>
                </a>
              ),
            },
            { title: "Used by", cell: (each) => users(each).length || "–" },
            { title: "Description", kind: "wide", cell: (each) => <Text>{String((each.spec as PluginSpec).description ?? "")}</Text> },
            { title: "Published", kind: "left", cell: (each) => moment(Date.parse(each.createdAt)).slice(0, 10) },
          ]}
        />
      )}
    </>
  );
}

function users(plugin: Plugin): User[] {
  return ((plugin.status as { resources?: User[] }).resources ?? []) as User[];
}

interface OneProps {
  name: string;
  plugin: Plugin | null;
  all: Plugin[] | null;
  fault: string;
  chosen: string;
}

const LANES = { preStart: "Create", postStop: "Delete" };

function OnePlugin({ name, plugin, all, fault, chosen }: OneProps): JSX.Element {
  const written = (plugin?.spec ?? {}) as PluginSpec;
  const bare = name.split("@")[0] ?? name;
  const units = useMemo(() => stepUnits(written, bare), [plugin, bare]);
  const edges = useMemo(() => plan(written), [plugin]);
  const others = (all ?? []).filter((each) => each.name.split("@")[0] === bare && each.name !== name);
  const step = units.find((each) => each.id === chosen);
  return (
    <>
      <div class="head">
        <Heading title={name}>
          <Text>{name}</Text>
        </Heading>
      </div>
      <Fault>{fault}</Fault>
      {all && !plugin && <p class="nothing">There is no such version of a plugin.</p>}
      {plugin && (
        <>
          <p>
            <Text>{written.description ?? ""}</Text>
          </p>
          {others.length > 0 && (
            <p>
              Other versions:{" "}
              {others.map((each) => (
                <a key={each.name} class="chip" href={href(["plugins", each.name])}>
                  <Text>{each.name}</Text>
                </a>
              ))}
            </p>
          )}
          <h2>Params</h2>
          <Params of={written} />
          <h2>Steps</h2>
          {units.length > 0 && <GraphView units={units} plan={edges} chosen={chosen} titles={LANES} />}
          {step ? <OneStep step={step.step} /> : <p class="aside">Select a step to see its inputs, outputs and script.</p>}
          <h2>Used by</h2>
          {users(plugin).length ? (
            <ul>
              {users(plugin).map((each) => (
                <li key={`${each.sandbox} ${each.name}`}>
                  <a href={href(["sandboxes", each.sandbox])}>
                    <Text>{`${each.sandbox}, as ${each.name}`}</Text>
                  </a>
                </li>
              ))}
            </ul>
          ) : (
            <p class="aside">Not in use.</p>
          )}
          {!plainCluster() && <PastRuns plugin={bare} />}
          <ReadmeOf name={name} />
        </>
      )}
    </>
  );
}

function Params({ of }: { of: PluginSpec }): JSX.Element {
  const found = params(of);
  if (!found.length) return <p class="aside">No params.</p>;
  return (
    <ul class="values">
      {found.map(({ name, says, takers }) => (
        <li key={name}>
          <b>
            <Text>{name}</Text>
          </b>
          <span>
            <code>
              <Text>{says}</Text>
            </code>{" "}
            <span class="aside">
              for <Text>{takers.join(", ")}</Text>
            </span>
          </span>
        </li>
      ))}
    </ul>
  );
}

/** The details of one step. */
function OneStep({ step }: { step: Step }): JSX.Element {
  const runs = step.script ?? JSON.stringify(step.webhook ?? step.object ?? step.command ?? {}, null, 2);
  return (
    <section class="step" aria-labelledby="step">
      <h3 id="step">
        <Text>{step.name ?? ""}</Text>
      </h3>
      <dl>
        {(step.inputs ?? []).map((each) => (
          <Fact key={each.name} title={each.name ?? ""}>
            {each.valueFromStep ? `← ${each.valueFromStep.name}.${each.valueFromStep.output}` : each.valueFromSandbox ? "← a param" : (each.value ?? "")}
          </Fact>
        ))}
        {(step.outputs ?? []).map((each) => (
          <Fact key={each.name} title={each.name ?? ""}>
            {`→ ${each.valueFromPath ?? "an output"}${each.sensitive ? " (sensitive)" : ""}`}
          </Fact>
        ))}
      </dl>
      <pre tabIndex={0} aria-label={`What ${step.name ?? ""} runs`}>
        {logText(runs)}
      </pre>
    </section>
  );
}

function Fact({ title, children }: { title: string; children: string }): JSX.Element {
  return (
    <>
      <dt>
        <Text>{title}</Text>
      </dt>
      <dd>
        <code>
          <Text>{children}</Text>
        </code>
      </dd>
    </>
  );
}

type Reader = typeof import("./readme").default;

/** The README, last on the page so that nothing moves when it arrives. The Markdown parser is loaded only here. */
function ReadmeOf({ name }: { name: string }): JSX.Element | null {
  const [bare, version] = [name.split("@")[0] ?? name, name.split("@")[1] ?? "0.0.0"];
  const { found, fault } = useQuery<Plugin>(`${orgPath("resource-plugins", bare)}?version=${encodeURIComponent(version)}`, 0, 30_000);
  const [Reader, setReader] = useState<Reader | null>(null);
  const text = found?.readme ?? "";
  useEffect(() => {
    if (text && !Reader) void import("./readme").then((read) => setReader(() => read.default));
  }, [text, Reader]);
  if (!text) return fault ? <Fault>{fault}</Fault> : null;
  return (
    <section aria-labelledby="readme">
      <h2 id="readme">README</h2>
      {Reader ? <Reader text={text} /> : null}
    </section>
  );
}
