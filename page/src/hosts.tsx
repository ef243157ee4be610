/** Hosts: clusters and machines that run sandboxes. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { orgPath } from "./api";
import { spec } from "./filter";
import { useQuery, useNow, type Live } from "./live";
import { href } from "./router";
import { Table } from "./table";
import { roughly } from "./text";
import type { Cluster, Concern } from "./types";
import { Fault, Heading, Prose, State, Text } from "./ui";

export function Hosts({ live, concerns }: { live: Live; concerns: Concern[] }): JSX.Element {
  const { found, fault } = useQuery<Cluster[]>(orgPath("clusters"), 0, 15_000);
  const now = useNow(10_000);
  const counted = useMemo(() => {
    const of = new Map<string, number>();
    for (const each of live.all.values()) of.set(spec(each).cluster ?? "", (of.get(spec(each).cluster ?? "") ?? 0) + 1);
    return of;
  }, [live.all]);
  const silent = new Map(concerns.filter((each) => each.kind === "silent").map((each) => [each.subject.replace(/^cluster /, ""), each]));
  return (
    <>
      <div class="head">
        <Heading title="Hosts">Hosts</Heading>
      </div>
      <Fault>{fault}</Fault>
      {found && !found.length && <p class="nothing">No host is connected yet.</p>}
      {found && found.length > 0 && (
        <Table
          caption="Hosts: clusters and machines that run sandboxes"
          rows={found}
          of={(each) => each.name}
          columns={[
            {
              title: "Host",
              cell: (each) => (
                <a href={href(["sandboxes"], { q: `on:${each.name}` })}>
                  <Text>{each.name}</Text>
                </a>
              ),
            },
            { title: "Sandboxes", cell: (each) => counted.get(each.name) ?? 0 },
            { title: "State", kind: "wide", cell: (each) => <Standing of={each} silent={silent.get(each.name)} now={now} /> },
            { title: "Operator", kind: "left", cell: (each) => <Text>{each.operator.version || "–"}</Text> },
          ]}
        />
      )}
    </>
  );
}

function Standing({ of, silent, now }: { of: Cluster; silent: Concern | undefined; now: number }): JSX.Element {
  if (silent)
    return (
      <>
        <State state="warning">silent</State>{" "}
        <span class="aside">
          for {roughly(now - (silent.since || now))}: <Prose>{silent.message}</Prose>
        </span>
      </>
    );
  if (!of.operator.version) return <State state="waiting">has not connected yet</State>;
  return <State state="ready">no trouble known</State>;
}
