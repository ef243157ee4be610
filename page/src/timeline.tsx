/** The timeline of attempts. Each unit has a row from the start, so nothing moves when an attempt starts. */
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { part } from "./api";
import { MARKS, place, rows, scale, sinceBegin, total, type Row } from "./attempts";
import { useQuery, useNow } from "./live";
import { withQuery } from "./router";
import { duration, moment, visible } from "./text";
import type { Move, Report, Unit } from "./types";
import { Text } from "./ui";

export function Timeline({ at: address, report, units }: { at: string; report: Report; units: readonly Unit[] }): JSX.Element {
  const { found: moves } = useQuery<Move[]>(part(address, "history"), report.version);
  const runs = units.some((unit) => unit.state === "running" || unit.state === "unknown");
  const now = useNow(runs ? 1000 : 60_000);
  const found = useMemo(() => rows(units, moves ?? []), [units, moves]);
  const at = scale(found, now);
  return (
    <section class="timeline" aria-labelledby="timeline">
      <h2 id="timeline">
        Attempts <span class="aside">from {moment(at.begin)}</span>
      </h2>
      <div class="axis" aria-hidden="true">
        <span class="track">
          {MARKS.map((percent) => (
            <span key={percent} style={{ left: `${percent}%` }}>
              {percent ? duration(sinceBegin(at, percent)) : "0"}
            </span>
          ))}
        </span>
      </div>
      <ul>
        {found.map((row) => (
          <li key={row.unit}>
            <a href={withQuery({ unit: row.unit })} class="of">
              <Text>{row.unit}</Text>
            </a>
            <span class="track">
              {row.bars.map((bar) => {
                const { left, width } = place(bar, at, now);
                const says = `attempt ${bar.attempt}: ${bar.state}, ${moment(bar.from)}, ${duration((bar.to || now) - bar.from)}`;
                return (
                  <span key={bar.attempt} class={`attempt ${bar.state}`} style={{ transform: `translateX(${left}%) scaleX(${width / 100})` }} title={visible(says)}>
                    <span class="offstage">{visible(says)}</span>
                  </span>
                );
              })}
            </span>
            <span class="took">{took(row, now)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** How long the attempts of a unit ran: 1.2 s, or 3 × 1.2 s in all. */
function took(row: Row, now: number): string {
  const { attempts, ms } = total(row, now);
  if (!attempts) return "–";
  return attempts === 1 ? duration(ms) : `${attempts} tries, ${duration(ms)}`;
}
