/** Sandboxes that have ended: the newest by themselves, older ones when somebody asks. */
import type { JSX } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { below, get, place as cluster, words } from "./api";
import { useAsked, useNow, type Live } from "./live";
import { go, href, withQuery, type Place } from "./router";
import { Table } from "./table";
import { duration, moment, roughly } from "./text";
import type { Ended } from "./types";
import { Fault, Heading, Text } from "./ui";

const FIRST = 200;
const MORE = 1000;

/** How far back they go. */
function span(): string {
  return cluster() ? "since this page is served" : "in the last week";
}

export function EndedView({ live, place }: { live: Live; place: Place }): JSX.Element {
  const now = useNow(10_000);
  const query = place.query.get("q") ?? "";
  const { found: newest, fault } = useAsked<Ended[]>(`${below("ended-sandboxes")}?limit=${FIRST}`, live.all.size, 15_000);
  const [all, setAll] = useState<Ended[]>([]);
  const [last, setLast] = useState(0);
  const [refused, setRefused] = useState("");
  // Before it is painted: nobody is to read that there is none.
  useLayoutEffect(() => setAll((known) => joined(newest ?? [], known)), [newest]);
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter(({ name, cluster }) => terms.every((term) => `${name}\n${cluster}`.toLowerCase().includes(term)));
  // A full answer may not be all; a cluster's page has what it has.
  const more = !cluster() && (last && all.length > FIRST ? last === MORE : (newest ?? []).length === FIRST);
  const ask = async (): Promise<void> => {
    const oldest = all[all.length - 1];
    try {
      // Of several in the same millisecond some may be known; they are told again and known by their uid.
      const before = Date.parse(oldest?.endedAt ?? "") + 1;
      const next = await get<Ended[]>(`${below("ended-sandboxes")}?before=${before}&limit=${MORE}`);
      setAll((known) => joined(known, next));
      setLast(next.length);
      setRefused("");
    } catch (why) {
      setRefused(words(why));
    }
  };
  return (
    <>
      <div class="head">
        <Heading title="Ended">Ended</Heading>
        <form role="search" onSubmit={(event) => event.preventDefault()}>
          <input
            id="search"
            type="search"
            aria-label="Filter ended sandboxes"
            placeholder={`name or ${cluster() ? "namespace" : "host"}`}
            value={query}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => go(withQuery({ q: event.currentTarget.value }), "replace")}
          />
        </form>
        <p class="count" role="status">
          {newest ? said(found.length, all.length, more) : "Loading…"}
        </p>
      </div>
      <Fault>{fault || refused}</Fault>
      {newest && !found.length && <p class="nothing">{all.length ? "None of these fits that filter." : `No sandbox has ended ${span()}.`}</p>}
      {cluster() && <p class="aside">A cluster keeps nothing of a sandbox that is gone: neither logs nor history. A server does, for a week.</p>}
      {found.length > 0 && <Rows found={found} now={now} />}
      {more && (
        <p>
          <button type="button" onClick={() => void ask()}>
            Show older ones
          </button>
        </p>
      )}
    </>
  );
}

/** The newer ones, and behind them of the older ones those that follow; none if what ended between them is not known. */
export function joined(newer: readonly Ended[], older: readonly Ended[]): Ended[] {
  const uids = new Set(newer.map((each) => each.uid));
  const meets = !newer.length || older.some((each) => uids.has(each.uid));
  return [...newer, ...(meets ? older.filter((each) => !uids.has(each.uid)) : [])];
}

function said(found: number, all: number, more: boolean): string {
  const known = more ? `the last ${all}` : `${all} ${span()}`;
  return found === all ? known : `${found} of ${known}`;
}

function Rows({ found, now }: { found: Ended[]; now: number }): JSX.Element {
  return (
    <Table
      caption={`Sandboxes that have ended ${span()}, the last first`}
      rows={found}
      of={(each) => each.uid}
      columns={[
        {
          title: "Name",
          cell: (each) => (
            <a href={href(["sandboxes", each.name], { uid: each.uid })}>
              <Text>{each.name}</Text>
            </a>
          ),
        },
        {
          title: "Ended",
          cell: (each) => `${roughly(now - Date.parse(each.endedAt))} ago`,
          tip: (each) => moment(Date.parse(each.endedAt)),
        },
        { title: "Lived", cell: (each) => duration(Date.parse(each.endedAt) - Date.parse(each.createdAt)) },
        { title: cluster() ? "Namespace" : "Host", kind: "host", cell: (each) => <Text>{each.cluster}</Text> },
      ]}
    />
  );
}
