/** One route group: its match, the matching sandboxes and which fork answers, and the run of its hooks. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { plainCluster } from "./api";
import { About, Fact, LabelFacts } from "./facts";
import { matchedSandboxes, spec, toneOf, TONE_WORDS } from "./filter";
import type { Live } from "./live";
import { shown, type Shown } from "./match";
import { href, type Place } from "./router";
import { Run } from "./run";
import type { Group, Sandbox } from "./types";
import { State, Text } from "./ui";

export function GroupView({ name, place, live }: { name: string; place: Place; live: Live }): JSX.Element {
  const uid = place.query.get("uid") ?? "";
  const found = (!uid && live.groups.all.get(name)) || null;
  const missing = `There is no route group of this name${plainCluster() ? "" : ", and none has ended in the last week"}.`;
  return (
    <Run
      subject={{ plural: "routegroups", kind: "route group", name, uid }}
      place={place}
      found={found}
      missing={missing}
      facts={() => found && <Facts group={found} />}
    >
      {found && (
        <div class="matching">
          <section aria-labelledby="matches">
            <h2 id="matches">What it matches</h2>
            <div class="match-tree" tabIndex={0} role="group" aria-labelledby="matches">
              <Match of={shown(found.spec["match"])} />
            </div>
          </section>
          <Members group={found} live={live} />
        </div>
      )}
    </Run>
  );
}

function Match({ of }: { of: Shown }): JSX.Element {
  if (of.kind === "odd")
    return (
      <p>
        Invalid match: <code><Text>{of.text}</Text></code>
      </p>
    );
  if (of.kind === "label")
    return (
      <p class="term">
        <b>
          <Text>{of.key}</Text>
        </b>{" "}
        <span class="aside">{of.pattern ? "matches" : "is"}</span>{" "}
        <code>
          <Text>{of.value}</Text>
        </code>
      </p>
    );
  return (
    <>
      <p class="aside">{of.kind === "any" ? "at least one of" : "all of"}</p>
      <ul>
        {of.terms.map((each, index) => (
          <li key={index}>
            <Match of={each} />
          </li>
        ))}
      </ul>
    </>
  );
}

interface Conflict {
  baseline: string;
  sandbox: string;
  others?: string[];
}

/** Remarks by sandbox, where several sandboxes of the group fork the same baseline. */
function notes(group: Group): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const note = (name: string, text: string): void => void found.set(name, [...(found.get(name) ?? []), text]);
  for (const { baseline, sandbox, others = [] } of (group.status.conflicts ?? []) as unknown as Conflict[]) {
    note(sandbox, `answers for ${baseline}`);
    for (const other of others) note(other, `does not answer for ${baseline}: ${sandbox} is older`);
  }
  return found;
}

/** The list has a fixed height. So the content below does not move while sandboxes come and go. */
function Members({ group, live }: { group: Group; live: Live }): JSX.Element {
  const said = useMemo(() => notes(group), [group]);
  const names = matchedSandboxes(group);
  const clashes = (group.status.conflicts ?? []).length;
  return (
    <section aria-labelledby="members">
      <h2 id="members">
        Sandboxes now{" "}
        <span class="aside" role="status">
          {group.status.matched}
          {clashes ? ` · ${clashes === 1 ? "one baseline is" : `${clashes} baselines are`} forked by several sandboxes: the oldest answers` : ""}
        </span>
      </h2>
      <ul class="members" tabIndex={0} aria-labelledby="members">
        {names.map((name) => (
          <Member key={name} name={name} sandbox={live.all.get(name)} notes={said.get(name) ?? []} />
        ))}
        {group.status.matched > names.length && (
          <li class="aside">and {group.status.matched - names.length} more</li>
        )}
        {!names.length && <li class="aside">No sandbox matches.</li>}
      </ul>
    </section>
  );
}

function Member({ name, sandbox, notes }: { name: string; sandbox: Sandbox | undefined; notes: string[] }): JSX.Element {
  const tone = sandbox && toneOf(sandbox);
  return (
    <li>
      <a href={href(["sandboxes", name])}>
        <Text>{name}</Text>
      </a>
      {tone ? <State state={tone}>{TONE_WORDS[tone]}</State> : <span />}
      <span class="aside" title={notes.join("; ")}>
        <Text>{notes.join("; ")}</Text>
      </span>
    </li>
  );
}

function Facts({ group }: { group: Group }): JSX.Element {
  const { description = "", labels = {}, ttl } = spec(group);
  return (
    <About found={group} description={description}>
      <LabelFacts labels={labels} />
      {ttl && (
        <Fact title="Time to live">
          <Text>{lives(ttl)}</Text>
        </Fact>
      )}
    </About>
  );
}

/** The event from which the time to live is counted. */
function lives({ duration, offsetFrom = "noMatchedSandboxes" }: { duration: string; offsetFrom?: string }): string {
  const from = { createdAt: "after it was created", updatedAt: "after its last change", noMatchedSandboxes: "after its last sandbox" };
  return `${duration} ${from[offsetFrom as keyof typeof from] ?? offsetFrom}`;
}
