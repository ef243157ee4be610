/** The list of route groups, and the groups that contain a sandbox. */
import type { JSX } from "preact";
import { orgPath, plainCluster } from "./api";
import { matchedSandboxes } from "./filter";
import { Listing, MESSAGE } from "./list";
import { useQuery, type Live } from "./live";
import { matchText } from "./match";
import type { Place } from "./router";
import type { Column } from "./rows";
import type { Group } from "./types";
import { Text } from "./ui";

/** How many sandboxes a row names; the column has no room for more. */
const NAMED = 8;

const COLUMNS: Column<Group>[] = [
  MESSAGE,
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
      extraTerms="has:sandbox"
      help="has:name finds the groups that contain a sandbox."
      emptyMessage={<Begin />}
    />
  );
}

function Begin(): JSX.Element {
  return (
    <>
      There are no route groups{plainCluster()?.namespace ? ` in namespace ${plainCluster()?.namespace}` : ""}. Create one with:{" "}
      <code>{plainCluster() ? "kubectl" : "dayfly"} apply -f FILE</code>
    </>
  );
}

function Members({ group }: { group: Group }): JSX.Element {
  const names = matchedSandboxes(group);
  return (
    <>
      <span class="figures">{group.status.matched}</span> <Text>{names.slice(0, NAMED).join(", ")}</Text>
    </>
  );
}

/** The names of the groups that contain a sandbox. If the stream lists only a part of a group's sandboxes, the server is queried. */
export function useGroupsOf(sandbox: string, live: Live): string[] {
  const all = [...live.groups.all.values()];
  const named = all.filter((each) => matchedSandboxes(each).includes(sandbox)).map((each) => each.name);
  const cut = all.filter((each) => each.status.matched > matchedSandboxes(each).length && !named.includes(each.name));
  const path = cut.length ? `${orgPath("routegroups")}?sandbox=${encodeURIComponent(sandbox)}` : null;
  const { found } = useQuery<Group[]>(path, [...named, ...cut.map((each) => `${each.name} ${each.status.matched}`)].join());
  return [...new Set([...named, ...(found ?? []).map((each) => each.name)])].sort();
}
