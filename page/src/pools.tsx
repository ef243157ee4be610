/** The list of pools. */
import type { JSX } from "preact";
import { plainCluster } from "./api";
import { Listing, MESSAGE } from "./list";
import type { Live } from "./live";
import type { Place } from "./router";
import type { Column } from "./rows";
import { duration } from "./text";
import type { Pool } from "./types";

const COLUMNS: Column<Pool>[] = [
  { ...MESSAGE, kind: "reason pool-reason" },
  { title: "Ready", kind: "number", cell: ({ status: { counts } }) => `${counts.ready ?? 0}/${counts.wanted ?? 0}` },
  { title: "Creating", kind: "number creating", cell: ({ status: { counts } }) => String(counts.creating ?? 0) },
  { title: "Held", kind: "number creating", cell: ({ status: { counts } }) => String(counts.held ?? 0) },
  { title: "Hits", kind: "number hits", cell: ({ status }) => hitRatio(status) },
  { title: "Refill", kind: "number hits", cell: ({ status }) => refillTime(status.refillSeconds) },
];

export function PoolList({ live, place }: { live: Live; place: Place }): JSX.Element {
  return (
    <Listing
      title="Pools"
      one="pool"
      plural="pools"
      known={live.pools}
      place={place}
      columns={COLUMNS}
      mortal={false}
      extraTerms=""
      help=""
      emptyMessage={
        <>
          There are no pools{plainCluster()?.namespace ? ` in namespace ${plainCluster()?.namespace}` : ""}. Create one with:{" "}
          <code>{plainCluster() ? "kubectl" : "dayfly"} apply -f FILE</code>
        </>
      }
    />
  );
}

/** The share of resources that found a ready member, in percent. */
export function hitRatio({ hits, misses }: Pick<Pool["status"], "hits" | "misses">): string {
  return hits + misses ? `${((100 * hits) / (hits + misses)).toFixed(1)} %` : "–";
}

export function refillTime(seconds: number): string {
  return seconds ? duration(seconds * 1000) : "–";
}
