/** The last sandboxes with a resource of a plugin: how each ended, as a row of marks from the oldest to the newest. */
import type { JSX } from "preact";
import { orgPath } from "./api";
import { howEnded } from "./ended";
import { useQuery } from "./live";
import { href } from "./router";
import { duration, moment } from "./text";
import type { Ended } from "./types";
import { Fault, State } from "./ui";

const LAST = 60;
/** The ends, worst first. */
const WORDS = ["abandoned", "failed", "expired", "clean"];

export function PastRuns({ plugin }: { plugin: string }): JSX.Element {
  const path = `${orgPath("ended-sandboxes")}?plugin=${encodeURIComponent(plugin)}&limit=${LAST}`;
  const { found, fault } = useQuery<Ended[]>(path, 0, 30_000);
  return (
    <section aria-labelledby="past">
      <h2 id="past">Ended in the last week</h2>
      <Fault>{fault}</Fault>
      {found && !found.length && <p class="aside">No sandbox with this plugin has ended.</p>}
      {found && found.length > 0 && (
        <>
          <p>{summarize(found, LAST)}</p>
          <ol class="past" aria-label="Ended sandboxes, oldest first">
            {[...found].reverse().map((each) => (
              <li key={each.uid}>
                <Mark ended={each} plugin={plugin} />
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  );
}

function Mark({ ended, plugin }: { ended: Ended; plugin: string }): JSX.Element {
  const { state, word } = howEnded(ended);
  const version = (ended.plugins ?? []).filter((each) => each.split("@")[0] === plugin).join(", ");
  const lived = duration(Date.parse(ended.endedAt) - Date.parse(ended.createdAt));
  const label = `${ended.name}, ${version}: ${word}, ${moment(Date.parse(ended.endedAt))}, lived ${lived}`;
  return (
    <a href={href(["sandboxes", ended.name], { uid: ended.uid })} title={label} aria-label={label}>
      <State state={state}>{""}</State>
    </a>
  );
}

/** How many sandboxes ended in each way, and whether more or fewer of the newer half went wrong. Pure. */
export function summarize(newestFirst: readonly Ended[], limit: number): string {
  const ends = newestFirst.map((each) => howEnded(each).word);
  const counts = WORDS.map((word) => [ends.filter((each) => each === word).length, word] as const).filter(([count]) => count);
  const size = ends.length;
  const whole = `${size === limit ? `The last ${size}` : size}: ${counts.map(([count, word]) => `${count} ${word}`).join(", ")}.`;
  const half = Math.floor(size / 2);
  const wrong = (part: readonly string[]): number => part.filter((each) => each === "failed" || each === "abandoned").length;
  const [newer, older] = [wrong(ends.slice(0, half)), wrong(ends.slice(size - half))];
  if (half < 5 || newer === older) return whole;
  return `${whole} Of the newest ${half}, ${newer} went wrong; of the ${half} oldest, ${older}.`;
}
