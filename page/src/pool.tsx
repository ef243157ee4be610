/** One pool: its state and cause, its members with their holders, the last failed member, and predictions for other sizes. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { mayChangePools, orgPath, part, request } from "./api";
import { Cause } from "./cause";
import { Fact } from "./facts";
import { hostOf, toneOf, TONE_WORDS } from "./filter";
import { useQuery, useNow, type Live } from "./live";
import { Log } from "./log";
import { hitRatio, refillTime } from "./pools";
import { href, qualify } from "./router";
import { Table } from "./table";
import { moment, roughly } from "./text";
import type { AttemptLog, Blocker, Pool, PoolExplanation, PoolMember } from "./types";
import { Ask, Fault, Heading, Prose, State, Text } from "./ui";

/** Predictions change slowly, and the list of members has its own updates. */
const EXPLAIN_INTERVAL_MS = 10_000;

export function PoolView({ name, live }: { name: string; live: Live }): JSX.Element {
  const pool = live.pools.all.get(name);
  return (
    <>
      <div class="head">
        <Heading title={name}>
          <Text>{name}</Text>
        </Heading>
        {pool && <PoolActions pool={pool} />}
      </div>
      {pool ? <Details pool={pool} live={live} /> : <p class="nothing">{live.pools.synced ? "There is no pool of this name." : "Loading…"}</p>}
    </>
  );
}

function Details({ pool, live }: { pool: Pool; live: Live }): JSX.Element {
  const at = orgPath("resourcepools", pool.name);
  const { status } = pool;
  const failed = status.members.filter((each) => each.state === "failed").at(-1);
  return (
    <>
      <Standing pool={pool} />
      <Why at={at} pool={pool} />
      <section aria-labelledby="members">
        <h2 id="members">Members</h2>
        {status.members.length ? <Members pool={pool} live={live} /> : <p class="aside">There are no members now.</p>}
      </section>
      {failed && <FailedMember key={failed.name} at={at} member={failed} />}
      <Explanation at={at} pool={pool} />
      <Facts pool={pool} />
    </>
  );
}

function Standing({ pool }: { pool: Pool }): JSX.Element {
  const now = useNow();
  const { status } = pool;
  const tone = toneOf(pool);
  return (
    <div class="standing">
      <p role="status">
        <State state={tone}>{status.paused ? "paused" : TONE_WORDS[tone]}</State>
        <b>{status.reason}</b>
      </p>
      <p class="aside">
        {status.counts.ready} of {status.counts.wanted} ready · {status.counts.held} held · {status.counts.creating} creating ·{" "}
        {roughly(now - Date.parse(pool.createdAt))} old
      </p>
      <p class="message">
        <Prose>{status.message}</Prose>
      </p>
    </div>
  );
}

/** The cause if the pool is not ready and needs a person. */
function Why({ at, pool }: { at: string; pool: Pool }): JSX.Element | null {
  const wanted = !pool.status.ready && pool.progress.severity !== "progress";
  const { found, fault } = useQuery<Blocker>(wanted ? part(at, "why") : null, `${pool.status.reason} ${pool.status.message}`);
  if (!wanted || !(found?.subject || fault)) return null;
  return (
    <section class="why" aria-labelledby="why" tabIndex={0}>
      <h2 id="why">Why</h2>
      <Fault>{fault}</Fault>
      {found?.subject && (
        <ul>
          <Cause blocker={found} root={found.subject} linksUnits={false} />
        </ul>
      )}
    </section>
  );
}

/** The state of a unit that looks like that of a member. */
const SIGNS: Record<string, string> = { creating: "running", ready: "succeeded", held: "running", failed: "failed", ending: "stopped" };

function Members({ pool, live }: { pool: Pool; live: Live }): JSX.Element {
  const now = useNow();
  return (
    <Table
      caption="Members of the pool"
      rows={pool.status.members}
      of={(each) => each.name}
      columns={[
        { title: "Member", cell: (each) => <Text>{each.name}</Text> },
        { title: "State", cell: (each) => <State state={SIGNS[each.state] ?? ""}>{each.state}</State> },
        { title: "Holder", cell: (each) => <Holder pool={pool} holder={each.holder ?? ""} live={live} /> },
        { title: "Age", kind: "age", cell: (each) => (each.createdAt ? roughly(now - Date.parse(each.createdAt)) : "–") },
        { title: "Message", kind: "reason", cell: (each) => <Prose>{each.message ?? ""}</Prose>, tip: (each) => each.message ?? "" },
      ]}
    />
  );
}

/** The sandbox that uses a member, as a link if it is known. A holder outside the scope of the key is not named. */
function Holder({ pool, holder, live }: { pool: Pool; holder: string; live: Live }): JSX.Element {
  const sandbox = qualify(holder.slice(0, Math.max(holder.lastIndexOf("/"), 0)), pool.name);
  if (!live.all.has(sandbox)) return <Text>{holder || "–"}</Text>;
  return (
    <a href={href(["sandboxes", sandbox])}>
      <Text>{holder}</Text>
    </a>
  );
}

function FailedMember({ at, member }: { at: string; member: PoolMember }): JSX.Element {
  const { found, fault } = useQuery<AttemptLog[]>(part(at, "attempts"), member.name);
  const last = found?.at(-1);
  return (
    <section aria-labelledby="failed">
      <h2 id="failed">
        Failed member <Text>{member.name}</Text>
      </h2>
      <p>
        <b>{member.reason}</b> <Prose>{member.message ?? ""}</Prose>
      </p>
      <Fault>{fault}</Fault>
      {last ? <Log at={at} unit={last.unit} attempt={last.attempt} /> : found && <p class="aside">It has no log.</p>}
    </section>
  );
}

function Explanation({ at, pool }: { at: string; pool: Pool }): JSX.Element {
  const { found, fault } = useQuery<PoolExplanation>(part(at, "explain"), pool.status.hits + pool.status.misses, EXPLAIN_INTERVAL_MS);
  return (
    <section aria-labelledby="use">
      <h2 id="use">Use</h2>
      <Fault>{fault}</Fault>
      <dl>
        <Fact title="Requests">
          {pool.status.hits + pool.status.misses}
          {found?.ratePerHour ? `, ${found.ratePerHour.toPrecision(3)} per hour` : ""}
        </Fact>
        <Fact title="Hits">
          {pool.status.hits} ({hitRatio(pool.status)})
        </Fact>
        <Fact title="Refill time">{refillTime(pool.status.refillSeconds)}</Fact>
      </dl>
      {found && found.sizes.length > 0 && (
        <Table
          caption="Predicted misses of other sizes"
          rows={found.sizes}
          of={(each) => String(each.ready)}
          columns={[
            { title: "Ready members", cell: (each) => `${each.ready}${each.ready === found.wanted ? " (now)" : ""}` },
            { title: "Predicted misses", kind: "wide", cell: (each) => `${(100 * each.missRatio).toFixed(2)} %` },
          ]}
        />
      )}
    </section>
  );
}

interface PoolSpec {
  plugin: string;
  params?: Record<string, string | null>;
  maxAge?: string;
}

function Facts({ pool }: { pool: Pool }): JSX.Element {
  const { plugin, params = {}, maxAge } = pool.spec as unknown as PoolSpec;
  const name = plugin.split("@")[0] ?? "";
  return (
    <section aria-labelledby="facts">
      <h2 id="facts">Details</h2>
      <dl>
        <Fact title="Plugin">
          <a href={href(["plugins", name])}>
            <Text>{plugin}</Text>
          </a>
          {plugin.includes("@") ? "" : " (newest version)"}
        </Fact>
        <Fact title={pool.namespace ? "Namespace" : "Host"}>
          <Text>{hostOf(pool)}</Text>
        </Fact>
        <Fact title="Created">{moment(Date.parse(pool.createdAt))}</Fact>
        {Object.entries(params).map(([key, value]) => (
          <Fact key={key} title={`Param ${key}`}>
            {value === null ? <span class="aside">not given</span> : <Text>{value}</Text>}
          </Fact>
        ))}
        {maxAge && <Fact title="Maximum age">{maxAge}</Fact>}
      </dl>
    </section>
  );
}

type Action = "pause" | "resume" | "drain" | "delete";

const EFFECTS: Record<Action, [title: string, effect: string]> = {
  pause: ["Pause", "It creates no members until it is resumed. Ready members stay and can be used."],
  resume: ["Resume", "It creates members again."],
  drain: ["Drain", "Its unused members are deleted, and none is created until it is resumed. Sandboxes keep their members."],
  delete: ["Delete", "Its unused members are deleted. Sandboxes keep their members."],
};

function PoolActions({ pool }: { pool: Pool }): JSX.Element | null {
  const [asked, setAsked] = useState<Action | "">("");
  if (!mayChangePools() || pool.progress.phase !== "open") return null;
  const offered: Action[] = [pool.status.paused ? "resume" : "pause", "drain", "delete"];
  const at = orgPath("resourcepools", pool.name);
  const act = (action: Action): Promise<unknown> => (action === "delete" ? request("DELETE", at) : request("POST", part(at, action), {}));
  return (
    <div class="actions" role="group" aria-label="Actions">
      {offered.map((action) => (
        <button key={action} type="button" class={action === "delete" ? "danger" : undefined} onClick={() => setAsked(action)}>
          {EFFECTS[action][0]}
        </button>
      ))}
      {asked && (
        <Ask
          title={`${EFFECTS[asked][0]} ${pool.name}?`}
          verb={EFFECTS[asked][0]}
          danger={asked === "delete" || asked === "drain"}
          onClose={() => setAsked("")}
          act={() => act(asked)}
        >
          <p>{EFFECTS[asked][1]}</p>
        </Ask>
      )}
    </div>
  );
}
