/** All route groups, and which of them have a sandbox. */
import type { JSX } from "preact";
import { below, place as cluster } from "./api";
import { matched } from "./filter";
import { Listing, type Column } from "./list";
import { useAsked, type Live } from "./live";
import { matchText } from "./match";
import type { Place } from "./router";
import type { Group } from "./types";
import { Text } from "./ui";

/** So many are named in a row; a column has no room for more. */
const NAMED = 8;

const COLUMNS: Column<Group>[] = [
  { title: "Reason", kind: "reason", cell: (each) => <Text>{each.status.reason}</Text>, tip: (each) => each.status.message },
  { title: "Matches", kind: "match", cell: (each) => <Text>{matchText(each.spec["match"])}</Text>, tip: (each) => matchText(each.spec["match"]) },
  { title: "Sandboxes", kind: "members", cell: (each) => <Members group={each} /> },
];

export function GroupList({ live, place }: { live: Live; place: Place }): JSX.Element {
  return (
    <Listing
      title="Route groups"
      one="route group"
      plural="routegroups"
      known={live.groups}
      place={place}
      columns={COLUMNS}
      wider="has:sandbox"
      help="has:name finds the groups that have a sandbox."
      begin={<Begin />}
    />
  );
}

function Begin(): JSX.Element {
  return (
    <>
      There are no route groups{cluster()?.namespace ? ` in namespace ${cluster()?.namespace}` : ""}. Create one with:{" "}
      <code>{cluster() ? "kubectl" : "dayfly"} apply -f FILE</code>
    </>
  );
}

function Members({ group }: { group: Group }): JSX.Element {
  const names = matched(group);
  return (
    <>
      <span class="figures">{group.status.matched}</span> <Text>{names.slice(0, NAMED).join(", ")}</Text>
    </>
  );
}

/** The groups that have a sandbox, by name. Where the stream does not name all sandboxes of a group, the server is asked. */
export function useGroupsOf(sandbox: string, live: Live): string[] {
  const all = [...live.groups.all.values()];
  const named = all.filter((each) => matched(each).includes(sandbox)).map((each) => each.name);
  const cut = all.filter((each) => each.status.matched > matched(each).length && !named.includes(each.name));
  const path = cut.length ? `${below("routegroups")}?sandbox=${encodeURIComponent(sandbox)}` : null;
  const { found } = useAsked<Group[]>(path, [...named, ...cut.map((each) => `${each.name} ${each.status.matched}`)].join());
  return [...new Set([...named, ...(found ?? []).map((each) => each.name)])].sort();
}
