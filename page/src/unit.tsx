/** One unit: inputs, outputs, attempts, log, receipt, and the units it waits for. */
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { part } from "./api";
import { rows, type Bar } from "./attempts";
import { Cause, causeOf } from "./cause";
import type { Details } from "./graph-model";
import { useQuery, useNow } from "./live";
import { Log } from "./log";
import { Outputs } from "./outputs";
import { Advice } from "./questions";
import { withQuery } from "./router";
import { duration, moment } from "./text";
import type { AttemptLog, Blocker, Move, Report, Unit } from "./types";
import { Prose, State, Text } from "./ui";

/** The states in which the cause and the log come first. */
const TROUBLE = new Set(["failed", "retrying", "unknown"]);

/** The unit that a run in trouble is about; undefined if it has none, or is not in trouble. */
export function unitInTrouble(units: readonly Unit[], about: string): Unit | undefined {
  return units.find((unit) => unit.id === about) ?? units.find((unit) => unit.state === "failed") ?? units.find((unit) => TROUBLE.has(unit.state));
}

interface Props {
  at: string;
  report: Report;
  unit: Unit;
  /** The blocker of the whole run. */
  why: Blocker | null;
  /** Whether the request for `why` has completed. */
  whyLoaded: boolean;
  about: Details | undefined;
  living: boolean;
}

export function UnitPanel({ at, report, unit, why, whyLoaded, about, living }: Props): JSX.Element {
  const now = useNow();
  const { found: moves, fault: unread } = useQuery<Move[]>(part(at, "history"), report.version);
  const { found: logs, fault: unlisted } = useQuery<AttemptLog[]>(part(at, "attempts"), report.version);
  const [attempt, setAttempt] = useState(0);
  useEffect(() => setAttempt(0), [unit.id]);
  const mine = useMemo(() => (moves ?? []).filter((move) => move.unit === unit.id), [moves, unit.id]);
  const logged = (logs ?? []).filter((log) => log.unit === unit.id).map((log) => log.attempt);
  const newest = logged.length ? Math.max(...logged) : 0;
  const shown = attempt || newest;
  const bars = useMemo(() => rows([unit], mine)[0]?.bars ?? [], [unit, mine]);
  const cause = causeOf(unit.id, why);
  // The sections are shown only when all responses have arrived, so that they do not move.
  const whole = whyLoaded && (moves !== null || unread !== "") && (logs !== null || unlisted !== "");
  const inTrouble = TROUBLE.has(unit.state);
  const log = (
    <section>
      <h3>Log</h3>
      {newest ? <Log at={at} unit={unit.id} attempt={shown} /> : <p class="aside log">{living && unlisted ? <Prose>{unlisted}</Prose> : "No log yet."}</p>}
    </section>
  );
  // The state above has the message already, so only deeper causes are listed.
  const isRoot = !(cause?.because ?? []).length;
  const causes = cause && (isRoot ? (
    <Advice next={cause.next ?? ""} unit={unit.id} />
  ) : (
    <section class="cause">
      <h3>Why</h3>
      <ul>
        <Cause blocker={cause} root={unit.id} />
      </ul>
    </section>
  ));
  return (
    <aside class="unit" aria-label={`Unit ${unit.id}`}>
      <div class="unit-head">
        <h2>
          <Text>{unit.id}</Text>
        </h2>
        <a class="close" href={withQuery({ unit: "" })} aria-label="Close this unit">
          ×
        </a>
      </div>
      <p class="standing">
        <State state={unit.state} /> <span class="aside">{unit.kind}, {unit.event}</span>
        <br />
        <span class="message" title={unit.reason}>
          <Prose>{unit.message || (unit.reason && unit.reason.toLowerCase() !== unit.state ? unit.reason : "") || (unit.since ? `since ${moment(unit.since)}` : "not yet")}</Prose>
        </span>
        {unit.until && unit.until > now ? <span class="aside"> Continues automatically at {moment(unit.until)}, in {duration(unit.until - now)}.</span> : null}
      </p>
      {whole ? (
        <>
          {inTrouble && causes}
          {inTrouble && log}
          {(unit.waitsOn ?? []).length > 0 && (
            <p>
              Waits for{" "}
              {(unit.waitsOn ?? []).map((id) => (
                <a key={id} class="chip" href={withQuery({ unit: id })}>
                  <Text>{id}</Text>
                </a>
              ))}
            </p>
          )}
          {unit.member && (
            <p>
              Ran in the pool member <Text>{unit.member}</Text>
              {unit.hit ? ", before the sandbox took it" : ""}.
            </p>
          )}
          <Inputs about={about} unit={unit} />
          <Outputs at={at} report={report} unit={unit} about={about} living={living} />
          {!inTrouble && log}
          {!inTrouble && causes}
          <Attempts bars={bars} logged={logged} shown={shown} show={setAttempt} now={now} />
          <Receipt moves={mine} unit={unit} />
          {living && unread && (
            <p class="aside">
              The receipt and history cannot be shown: <Prose>{unread}</Prose>
            </p>
          )}
          {about && (about.image || about.request || about.clocks || about.tries) ? (
            <details>
              <summary>Configuration</summary>
              <dl>
                <Pair name="Image" value={about.image} />
                <Pair name={unit.kind === "route" ? "Address" : "Action"} value={about.request} />
                <Pair name="Clocks" value={about.clocks} />
                <Pair name="Attempts" value={about.tries} />
              </dl>
            </details>
          ) : null}
        </>
      ) : (
        <p class="aside" role="status">
          Loading…
        </p>
      )}
    </aside>
  );
}

function Pair({ name, value }: { name: string; value: string }): JSX.Element | null {
  return value ? (
    <>
      <dt>{name}</dt>
      <dd>
        <Text>{value}</Text>
      </dd>
    </>
  ) : null;
}

function Inputs({ about, unit }: { about: Details | undefined; unit: Unit }): JSX.Element | null {
  const inputs = about?.inputs ?? [];
  if (!inputs.length && !(unit.reads ?? []).length) return null;
  return (
    <section>
      <h3>Inputs</h3>
      <ul class="values">
        {inputs.map((input) => (
          <li key={input.name}>
            <b>
              <Text>{input.name}</Text>
            </b>
            <code>
              {input.source ? <Text>{`← ${input.source}`}</Text> : input.sensitive ? "••••••" : <Text>{input.value ?? "(none)"}</Text>}
            </code>
          </li>
        ))}
        {!inputs.length &&
          (unit.reads ?? []).map((id) => (
            <li key={id}>
              <a href={withQuery({ unit: id })}>
                <Text>{id}</Text>
              </a>
            </li>
          ))}
      </ul>
    </section>
  );
}

interface AttemptsProps {
  bars: Bar[];
  /** The attempts that have a log. */
  logged: number[];
  shown: number;
  show: (attempt: number) => void;
  now: number;
}

/** Each attempt with its result and times. A click selects its log. */
function Attempts({ bars, logged, shown, show, now }: AttemptsProps): JSX.Element | null {
  const of = new Map(bars.map((bar) => [bar.attempt, bar]));
  const all = [...new Set([...of.keys(), ...logged])].sort((a, b) => a - b);
  if (!all.length) return null;
  return (
    <section>
      <h3>Attempts</h3>
      <ol class="attempts">
        {all.map((attempt) => {
          const bar = of.get(attempt);
          return (
            <li key={attempt}>
              {logged.includes(attempt) ? (
                <button type="button" class="quiet" aria-pressed={attempt === shown} aria-label={`Log of attempt ${attempt}`} onClick={() => show(attempt)}>
                  {attempt}
                </button>
              ) : (
                <span class="number">{attempt}</span>
              )}
              {bar && (
                <>
                  <State state={bar.state} />
                  <span class="aside">
                    {moment(bar.from)}, {duration((bar.to || now) - bar.from)}
                  </span>
                  {bar.state === "failed" && bar.reason ? <Text>{bar.reason}</Text> : null}
                </>
              )}
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** The unit's ledger entries, newest last. */
function Receipt({ moves, unit }: { moves: Move[]; unit: Unit }): JSX.Element | null {
  if (!moves.length) return null;
  return (
    <details>
      <summary>
        Receipt and history of {moves.length === 1 ? "one move" : `${moves.length} moves`}
        {unit.startedAt && unit.endedAt ? `, ran ${duration(unit.endedAt - unit.startedAt)}` : ""}
      </summary>
      <ol class="moves">
        {moves.map((move, index) => (
          <li key={index}>
            <time>{moment(move.at)}</time> <b>{move.move}</b> attempt {move.attempt}{" "}
            <Prose>{[move.reason, move.message].filter(Boolean).join(": ")}</Prose>
          </li>
        ))}
      </ol>
    </details>
  );
}
