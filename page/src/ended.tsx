/** Ended sandboxes: the newest are loaded automatically, older ones on request. */
import type { JSX } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { orgPath, get, plainCluster, words } from "./api";
import { useQuery, useNow, type Live } from "./live";
import { go, href, withQuery, type Place } from "./router";
import { Table } from "./table";
import { duration, moment, roughly } from "./text";
import type { Ended } from "./types";
import { Fault, Heading, State, Text } from "./ui";

const FIRST = 200;
const MORE = 1000;

/** The period that the list covers. */
function span(): string {
  return plainCluster() ? "since this page was started" : "in the last week";
}

export function EndedView({ live, place }: { live: Live; place: Place }): JSX.Element {
  const now = useNow(10_000);
  const query = place.query.get("q") ?? "";
  const { found: newest, fault } = useQuery<Ended[]>(`${orgPath("ended-sandboxes")}?limit=${FIRST}`, live.all.size, 15_000);
  const [all, setAll] = useState<Ended[]>([]);
  const [last, setLast] = useState(0);
  const [refused, setRefused] = useState("");
  // A layout effect: otherwise the view would briefly show that there are none.
  useLayoutEffect(() => setAll((known) => mergeEnded(newest ?? [], known)), [newest]);
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((each) => {
    const text = [each.name, each.cluster, each.by, each.message, howEnded(each).word].join("\n").toLowerCase();
    return terms.every((term) => text.includes(term));
  });
  // A full response may be incomplete. The page of a cluster has only one response.
  const more = !plainCluster() && (last && all.length > FIRST ? last === MORE : (newest ?? []).length === FIRST);
  const ask = async (): Promise<void> => {
    const oldest = all[all.length - 1];
    try {
      // Several sandboxes may have ended in the same millisecond. They are requested again and matched by UID.
      const before = Date.parse(oldest?.endedAt ?? "") + 1;
      const next = await get<Ended[]>(`${orgPath("ended-sandboxes")}?before=${before}&limit=${MORE}`);
      setAll((known) => mergeEnded(known, next));
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
            placeholder={`name, ${plainCluster() ? "namespace" : "host"}, author, or clean, expired, failed, abandoned`}
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
      {newest && !found.length && <p class="nothing">{all.length ? "No ended sandbox matches the filter." : `No sandbox has ended ${span()}.`}</p>}
      {plainCluster() && <p class="aside">A cluster keeps neither logs nor history of a deleted sandbox. A server keeps them for a week.</p>}
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

/** The newer sandboxes, followed by the older ones that are known. If the two lists do not overlap, the older ones are
 * dropped: sandboxes between them may be missing.
 */
export function mergeEnded(newer: readonly Ended[], older: readonly Ended[]): Ended[] {
  const uids = new Set(newer.map((each) => each.uid));
  const meets = !newer.length || older.some((each) => uids.has(each.uid));
  return [...newer, ...(meets ? older.filter((each) => !uids.has(each.uid)) : [])];
}

/** How a sandbox ended, in one word, with the state that colours it. Pure. */
export function howEnded({ abandoned, failed, reason }: Pick<Ended, "abandoned" | "failed" | "reason">): { state: string; word: string } {
  if (abandoned) return { state: "warning", word: "abandoned" };
  if (failed) return { state: "failed", word: "failed" };
  if (reason === "Expired" || reason === "LeaseExpired") return { state: "stopped", word: "expired" };
  return { state: "succeeded", word: "clean" };
}

function End({ ended }: { ended: Ended }): JSX.Element {
  const { state, word } = howEnded(ended);
  const units = ended.units ?? [];
  return (
    <>
      <State state={state}>{word}</State>{" "}
      <span class="aside">
        {word === "failed" && (ended.reason === "Expired" ? "then expired, and was cleaned up" : "then deleted, and was cleaned up")}
        {word === "abandoned" && (
          <>
            <Text>{ended.message ?? ""}</Text>
            {units.length ? ". May have left: " : ""}
            <Text>{units.join(", ")}</Text>
          </>
        )}
      </span>
    </>
  );
}

function said(found: number, all: number, more: boolean): string {
  const known = more ? `the last ${all}` : `${all} ${span()}`;
  return found === all ? known : `${found} of ${known}`;
}

function Rows({ found, now }: { found: Ended[]; now: number }): JSX.Element {
  return (
    <Table
      caption={`Sandboxes that have ended ${span()}, newest first`}
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
          kind: "age",
          cell: (each) => `${roughly(now - Date.parse(each.endedAt))} ago`,
          tip: (each) => moment(Date.parse(each.endedAt)),
        },
        { title: "End", kind: "wide", cell: (each) => <End ended={each} /> },
        { title: "By", kind: "by", cell: (each) => (each.by ? <Text>{each.by}</Text> : "–"), tip: (each) => each.by ?? "" },
        { title: "Lived", kind: "left", cell: (each) => duration(Date.parse(each.endedAt) - Date.parse(each.createdAt)) },
        { title: plainCluster() ? "Namespace" : "Host", kind: "host", cell: (each) => <Text>{each.cluster}</Text> },
      ]}
    />
  );
}
