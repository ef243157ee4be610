/** The columns for the labels owner, pr and link. A column appears only if a sandbox has its label. */
import type { JSX } from "preact";
import { creatorOf, spec } from "./filter";
import type { Column } from "./rows";
import { safeUrl } from "./text";
import type { Sandbox } from "./types";
import { Text } from "./ui";

interface LabelColumn extends Column<Sandbox> {
  has: (each: Sandbox) => boolean;
}

function label(each: Sandbox, key: string): string {
  return spec(each).labels?.[key] ?? "";
}

const COLUMNS: LabelColumn[] = [
  {
    title: "Owner",
    kind: "owner",
    has: (each) => ownerOf(each) !== "",
    cell: (each) => (ownerOf(each) ? <Text>{ownerOf(each)}</Text> : "–"),
    tip: ownerOf,
  },
  { title: "PR", kind: "pr", has: (each) => label(each, "pr") !== "", cell: (each) => <Link value={label(each, "pr")} shown={pullRequest} /> },
  { title: "Link", kind: "link", has: (each) => label(each, "link") !== "", cell: (each) => <Link value={label(each, "link")} shown={(url) => url.host} /> },
];

/** The labels of a sandbox that have no column. */
export function otherLabels(each: Sandbox): Record<string, string> {
  return Object.fromEntries(Object.entries(spec(each).labels ?? {}).filter(([key]) => !["owner", "pr", "link"].includes(key)));
}

/** The label, or the name of the key that created the sandbox. */
function ownerOf(each: Sandbox): string {
  return label(each, "owner") || creatorOf(each);
}

/** The last number in the address of a pull request, or its host. */
function pullRequest(url: URL): string {
  const number = url.pathname.split("/").filter((part) => /^\d+$/.test(part)).pop();
  return number ? `#${number}` : url.host;
}

/** A label value. Only http and https addresses become links. */
function Link({ value, shown }: { value: string; shown: (url: URL) => string }): JSX.Element {
  const address = safeUrl(value);
  if (!address) return <Text>{/^\d+$/.test(value) ? `#${value}` : value || "–"}</Text>;
  return (
    <a href={address} title={address} target="_blank" rel="noopener noreferrer nofollow">
      <Text>{shown(new URL(address))}</Text>
    </a>
  );
}

export function labelColumns(all: Iterable<Sandbox>): Column<Sandbox>[] {
  const sandboxes = [...all];
  return COLUMNS.filter(({ has }) => sandboxes.some(has));
}
