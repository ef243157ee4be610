/** The live list of sandboxes, route groups or pools: the filter, the counts by state, and the rows. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { may, plainCluster } from "./api";
import { ApplyDialog } from "./apply";
import { BulkBar, maySelect, useSelection } from "./bulk";
import { countTones, matches, parse, sorted, toneOf, TONES, TONE_WORDS, withTone, type Order, type Terms } from "./filter";
import type { Kind, Live } from "./live";
import { labelColumns, otherLabels } from "./label-columns";
import { messageOf } from "./messages";
import { go, withQuery, type Place } from "./router";
import { DEFAULT_ORDER, Rows, type Column } from "./rows";
import type { Listed, Sandbox } from "./types";
import { Heading, Labels, State, Text } from "./ui";

const ORDERS: Order[] = ["name", "age", "state", "left"];

/** What its state is, in words. The tooltip has the reason, which the reference explains. */
export const MESSAGE: Column<Listed> = {
  title: "Message",
  kind: "reason",
  cell: (each) => <Text>{messageOf(each)}</Text>,
  tip: (each) => `${messageOf(each)} (${each.status.reason})`,
};

const COLUMNS: Column<Sandbox>[] = [
  MESSAGE,
  { title: "Progress", kind: "progress", cell: (each) => <Progress sandbox={each} /> },
];

const LABELS: Column<Sandbox>[] = [{ title: "Labels", kind: "labels", cell: (each) => <Labels labels={otherLabels(each)} /> }];

export function List({ live, place }: { live: Live; place: Place }): JSX.Element {
  const columns = useMemo(() => [...COLUMNS, ...labelColumns(live.all.values())], [live.all]);
  return (
    <Listing
      title="Sandboxes"
      one="sandbox"
      plural="sandboxes"
      known={live}
      place={place}
      columns={columns}
      after={LABELS}
      selectable
      tools={<Create />}
      extraTerms=""
      help=""
      emptyMessage={<Begin />}
    />
  );
}

interface ListingProps<T extends Listed> {
  title: string;
  /** Singular, as used in a sentence. */
  one: string;
  /** Plural, as used in addresses. */
  plural: string;
  known: Kind<T>;
  place: Place;
  columns: Column<T>[];
  /** Columns after the column `Time left`. */
  after?: Column<T>[];
  /** Whether the objects may have a time to live. */
  mortal?: boolean;
  /** Whether rows can be selected for actions. */
  selectable?: boolean;
  /** Buttons beside the filter. */
  tools?: JSX.Element;
  /** Filter terms that only this list has (for the placeholder), and a sentence about them. */
  extraTerms: string;
  help: string;
  /** Shown if the list is empty. */
  emptyMessage: JSX.Element;
}

const NO_COLUMNS: Column<Listed>[] = [];

export function Listing<T extends Listed>(props: ListingProps<T>): JSX.Element {
  const { title, one, plural, known, place, columns, after = NO_COLUMNS, mortal = true, selectable = false, tools, extraTerms, help, emptyMessage } = props;
  const query = place.query.get("q") ?? "";
  const wanted = place.query.get("by") ?? DEFAULT_ORDER;
  const backwards = wanted.startsWith("-");
  const order = ORDERS.find((each) => each === wanted.replace("-", "")) ?? DEFAULT_ORDER;
  const all = useMemo(() => [...known.all.values()], [known.all]);
  const many = all.length === 1 ? one : one === "sandbox" ? "sandboxes" : `${one}s`;
  const found = useMemo(() => {
    const terms = parse(query);
    return sorted(
      all.filter((each) => matches(terms, each)),
      order,
      backwards,
    );
  }, [all, query, order, backwards]);
  const selection = useSelection(found);
  return (
    <>
      <div class="head">
        <Heading title={title}>{title}</Heading>
        <form role="search" onSubmit={(event) => event.preventDefault()}>
          <input
            id="search"
            type="search"
            aria-label={`Filter ${title.toLowerCase()}`}
            aria-describedby="filter-help"
            placeholder={["name, label=value, is:failed", extraTerms, `on:${plainCluster() ? "namespace" : "host"}`].filter(Boolean).join(", ")}
            value={query}
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => go(withQuery({ q: event.currentTarget.value }), "replace")}
          />
          <span id="filter-help" class="offstage">
            Words match names, messages, hosts, labels and descriptions. key=value finds a label, is:stuck, is:failed, is:warning,
            is:blocked, is:working or is:ready a state, on:name a host or namespace. {help}
          </span>
        </form>
        {tools}
        <p class="count" role="status">
          {known.synced ? count(found.length, all.length, many) : known.fault ? "Not known" : "Loading…"}
        </p>
      </div>
      <BulkBar selection={selection}>
        <Counts all={all} query={query} />
      </BulkBar>
      <Rows
        title={title}
        plural={plural}
        found={found}
        order={order}
        backwards={backwards}
        synced={known.synced}
        columns={columns}
        after={after}
        mortal={mortal}
        selection={selectable && maySelect() ? selection : null}
        nothing={all.length ? `No ${one} matches the filter.` : emptyMessage}
      />
    </>
  );
}

/** The number of objects in each state, counted over the objects that match the other terms. A click shows only one state; a second click shows all. */
function Counts({ all, query }: { all: Listed[]; query: string }): JSX.Element {
  const terms: Terms = parse(query);
  const chosen = terms.is.join();
  const counts = useMemo(() => countTones(all.filter((each) => matches({ ...parse(query), is: [] }, each))), [all, query]);
  return (
    <ul class="counts" aria-label="Number in each state">
      {TONES.filter((tone) => counts.get(tone) || tone === chosen).map((tone) => (
        <li key={tone}>
          <a href={withQuery({ q: withTone(query, tone === chosen ? "" : tone) })} aria-current={tone === chosen ? "true" : undefined}>
            <State state={tone}>{TONE_WORDS[tone]}</State> <b>{counts.get(tone) ?? 0}</b>
          </a>
        </li>
      ))}
    </ul>
  );
}

function count(found: number, all: number, many: string): string {
  return found === all ? `${all} ${many}` : `${found} of ${all} ${many}`;
}

function Create(): JSX.Element | null {
  const [asked, setAsked] = useState(false);
  if (!may("member") || plainCluster()) return null;
  return (
    <>
      <button type="button" onClick={() => setAsked(true)}>
        Create
      </button>
      {asked && <ApplyDialog name="" onClose={() => setAsked(false)} />}
    </>
  );
}

function Begin(): JSX.Element {
  return (
    <>
      There are no sandboxes{plainCluster()?.namespace ? ` in namespace ${plainCluster()?.namespace}` : ""}. Create one with:{" "}
      <code>{plainCluster() ? "kubectl" : "dayfly"} apply -f FILE</code>
    </>
  );
}

function Progress({ sandbox }: { sandbox: Sandbox }): JSX.Element {
  const { done, total } = sandbox.progress;
  if (!total) return <>–</>;
  return (
    <>
      <span class="bar" aria-hidden="true">
        <span style={{ width: `${(100 * done) / total}%` }} class={toneOf(sandbox)} />
      </span>
      <span class="figures">
        {done}/{total}
      </span>
    </>
  );
}

