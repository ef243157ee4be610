/** Plugins, hosts, and sandboxes that have ended. */
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { below, place as cluster } from "./api";
import { useAsked, useNow, type Live } from "./live";
import { spec } from "./filter";
import { href, type Place } from "./router";
import { duration, moment, roughly } from "./text";
import type { Cluster, Concern, Ended, Plugin } from "./types";
import { Fault, Heading, State, Text } from "./ui";

interface Step {
  name?: string;
  inputs?: Input[];
  outputs?: { name?: string; sensitive?: boolean; description?: string }[];
}

interface Input {
  name?: string;
  valueFromSandbox?: boolean;
  valueFromStep?: { name?: string; output?: string };
  required?: boolean;
  default?: unknown;
  description?: string;
}

interface PluginSpec {
  description?: string;
  create?: Step[];
  delete?: Step[];
  [key: string]: unknown;
}

type User = { name: string; sandbox: string; cluster: string };

export function Plugins({ place }: { place: Place }): JSX.Element {
  const { found, fault } = useAsked<Plugin[]>(`${below("resource-plugins")}?version=all`, 0, 30_000);
  const chosen = place.parts[1] ?? "";
  const one = found?.find((each) => each.name === chosen);
  if (chosen) return <OnePlugin name={chosen} plugin={one ?? null} all={found} fault={fault} />;
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
          No plugin is published. Publish one with: <code>{cluster() ? "kubectl apply" : "dayfly plugin apply"} -f FILE</code>
        </p>
      )}
      {found && found.length > 0 && (
        <div class="rows">
          <table>
            <caption class="offstage">Plugins and their versions</caption>
            <thead>
              <tr>
                <th scope="col">Plugin</th>
                <th scope="col">Used by</th>
                <th scope="col">Description</th>
                <th scope="col" class="left">Published</th>
              </tr>
            </thead>
            <tbody>
              {found.map((each) => (
                <tr key={each.name}>
                  <th scope="row">
                    <a href={href(["plugins", each.name])}>
                      <Text>{each.name}</Text>
                    </a>
                  </th>
                  <td>{users(each).length || "–"}</td>
                  <td class="wide">
                    <Text>{String((each.spec as PluginSpec).description ?? "")}</Text>
                  </td>
                  <td class="left">{moment(Date.parse(each.createdAt)).slice(0, 10)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
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
}

function OnePlugin({ name, plugin, all, fault }: OneProps): JSX.Element {
  const written = (plugin?.spec ?? {}) as PluginSpec;
  const params = new Map<string, Input>();
  for (const step of [...(written.create ?? []), ...(written.delete ?? [])])
    for (const input of step.inputs ?? []) if (input.valueFromSandbox && input.name && !params.has(input.name)) params.set(input.name, input);
  const bare = name.split("@")[0] ?? name;
  const others = (all ?? []).filter((each) => each.name.split("@")[0] === bare && each.name !== name);
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
          {params.size ? (
            <ul class="values">
              {[...params.values()].map((each) => (
                <li key={each.name}>
                  <b>
                    <Text>{each.name ?? ""}</Text>
                  </b>
                  <code>
                    <Text>{each.default !== undefined ? `default ${JSON.stringify(each.default)}` : each.required ? "required" : "may be left out"}</Text>
                  </code>
                </li>
              ))}
            </ul>
          ) : (
            <p class="aside">It takes none.</p>
          )}
          <Steps title="Create" steps={written.create ?? []} />
          <Steps title="Delete" steps={written.delete ?? []} />
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
            <p class="aside">Nobody at the moment.</p>
          )}
          <ReadmeOf name={name} />
        </>
      )}
    </>
  );
}

type Reader = typeof import("./readme").default;

/** At the end, where nothing moves when it comes; what reads Markdown comes only for whoever looks here. */
function ReadmeOf({ name }: { name: string }): JSX.Element | null {
  const [bare, version] = [name.split("@")[0] ?? name, name.split("@")[1] ?? "0.0.0"];
  const { found, fault } = useAsked<Plugin>(`${below("resource-plugins", bare)}?version=${encodeURIComponent(version)}`, 0, 30_000);
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

function Steps({ title, steps }: { title: string; steps: Step[] }): JSX.Element {
  return (
    <>
      <h2>{title}</h2>
      <ol class="steps">
        {steps.map((step) => (
          <li key={step.name}>
            <b>
              <Text>{step.name ?? ""}</Text>
            </b>{" "}
            {(step.inputs ?? []).flatMap((each) =>
              each.valueFromStep ? [<span key={each.name} class="chip"><Text>{`← ${each.valueFromStep.name}.${each.valueFromStep.output}`}</Text></span>] : [],
            )}
            {(step.outputs ?? []).map((each) => (
              <span key={each.name} class="chip gives">
                <Text>{`→ ${each.name ?? ""}${each.sensitive ? " (sensitive)" : ""}`}</Text>
              </span>
            ))}
          </li>
        ))}
      </ol>
    </>
  );
}

export function Hosts({ live }: { live: Live }): JSX.Element {
  const { found, fault } = useAsked<Cluster[]>(below("clusters"), 0, 15_000);
  const { found: concerns } = useAsked<Concern[]>(below("attention"), 0, 15_000);
  const counted = useMemo(() => {
    const of = new Map<string, number>();
    for (const each of live.all.values()) of.set(spec(each).cluster ?? "", (of.get(spec(each).cluster ?? "") ?? 0) + 1);
    return of;
  }, [live.all]);
  const silent = new Map((concerns ?? []).filter((each) => each.kind === "silent").map((each) => [each.subject.replace(/^cluster /, ""), each]));
  return (
    <>
      <div class="head">
        <Heading title="Hosts">Hosts</Heading>
      </div>
      <Fault>{fault}</Fault>
      {found && !found.length && <p class="nothing">No host is connected yet.</p>}
      {found && found.length > 0 && (
        <div class="rows">
          <table>
            <caption class="offstage">Hosts: clusters and machines that carry sandboxes out</caption>
            <thead>
              <tr>
                <th scope="col">Host</th>
                <th scope="col">Sandboxes</th>
                <th scope="col">State</th>
                <th scope="col" class="age">Operator</th>
              </tr>
            </thead>
            <tbody>
              {found.map((each) => (
                <tr key={each.name}>
                  <th scope="row">
                    <a href={href(["sandboxes"], { q: `on:${each.name}` })}>
                      <Text>{each.name}</Text>
                    </a>
                  </th>
                  <td>{counted.get(each.name) ?? 0}</td>
                  <td>
                    <State state={silent.has(each.name) ? "warning" : "ready"}>{silent.has(each.name) ? "silent" : "no trouble known"}</State>
                  </td>
                  <td class="age">
                    <Text>{each.operator.version || "–"}</Text>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** How far back the list of those that have ended goes. */
function span(): string {
  return cluster() ? "since this page is served" : "in the last week";
}

export function EndedView({ live }: { live: Live }): JSX.Element {
  const now = useNow(10_000);
  const { found, fault } = useAsked<Ended[]>(below("ended-sandboxes"), live.all.size, 15_000);
  return (
    <>
      <div class="head">
        <Heading title="Ended">Ended</Heading>
        <p class="count" role="status">
          {found ? `${found.length} ${span()}` : "Loading…"}
        </p>
      </div>
      <Fault>{fault}</Fault>
      {found && !found.length && <p class="nothing">No sandbox has ended {span()}.</p>}
      {cluster() && <p class="aside">A cluster keeps nothing of a sandbox that is gone: neither logs nor history. A server does, for a week.</p>}
      {found && found.length > 0 && (
        <div class="rows">
          <table>
            <caption class="offstage">Sandboxes that have ended {span()}, the last first</caption>
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Ended</th>
                <th scope="col">Lived</th>
                <th scope="col" class="host">{cluster() ? "Namespace" : "Host"}</th>
              </tr>
            </thead>
            <tbody>
              {found.map((each) => (
                <tr key={each.uid}>
                  <th scope="row">
                    <a href={href(["sandboxes", each.name])}>
                      <Text>{each.name}</Text>
                    </a>
                  </th>
                  <td>{roughly(now - Date.parse(each.endedAt))} ago</td>
                  <td>{duration(Date.parse(each.endedAt) - Date.parse(each.createdAt))}</td>
                  <td class="host">
                    <Text>{each.cluster}</Text>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
