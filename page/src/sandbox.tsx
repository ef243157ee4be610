/** One sandbox: how it stands and why, its graph, its attempts, and a unit's panel beside it. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Actions } from "./actions";
import { below, place as cluster } from "./api";
import { fromHistory } from "./attempts";
import { hostOf, spec, type Tone } from "./filter";
import { GraphView } from "./graph";
import { details, planned } from "./graph-model";
import { useAsked, useNow, useReport, type Live } from "./live";
import { go, withQuery, type Place } from "./router";
import { Timeline } from "./timeline";
import { duration, moment, roughly } from "./text";
import type { Blocker, Move, Plan, Report, Sandbox, Unit } from "./types";
import { Fault, Heading, Labels, State, Text, TONE_WORDS } from "./ui";
import { UnitPanel } from "./unit";

const OVER = ["cleaned", "abandoned"];

export function SandboxView({ name, place, live }: { name: string; place: Place; live: Live }): JSX.Element {
  const { report, fault, missing } = useReport(name);
  const over = !report || OVER.includes(report.phase ?? "");
  const living = !over && !missing;
  const sandbox = (living && live.all.get(name)) || null;
  // Forks may come and go; nothing else of a plan changes.
  const ids = (report?.units ?? []).map((unit) => unit.id).join(" ");
  const { found: newest, fault: unplanned } = useAsked<Plan>(living ? below("sandboxes", name, "plan") : null, ids);
  const plan = useLast(newest, newest !== null);
  const chosen = place.query.get("unit") ?? "";
  const of = useMemo(() => details(plan), [plan]);
  const units = useUnits(name, report, over, plan, unplanned);
  const unit = units?.find((each) => each.id === chosen);
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && chosen && !document.querySelector("dialog[open]")) go(withQuery({ unit: "" }), "replace");
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, [chosen]);
  if (missing && !report) return <Missing name={name} />;
  // Without its plan a graph has no names on its edges: all is drawn at once, with them, and nothing moves later.
  const drawn = report && units && (plan || unplanned || !living);
  return (
    <>
      <div class="head">
        <Heading title={name}>
          <Text>{name}</Text>
        </Heading>
        {report && <Actions name={name} report={report} sandbox={sandbox} />}
      </div>
      <Standing report={report} sandbox={sandbox} />
      <Fault>{report ? fault : ""}</Fault>
      {drawn && (
        <div class={unit ? "with-unit" : ""}>
          <div class="main-column">
            {units.length > 0 && <GraphView units={units} plan={plan} chosen={chosen} />}
            {!plan && living && unplanned && (
              <p class="aside">
                What goes between its units, and how they are run, cannot be shown: <Text>{unplanned}</Text>
              </p>
            )}
            <Why name={name} report={report} />
            {units.length > 0 && <Timeline name={name} report={report} units={units} />}
            {sandbox && <Facts sandbox={sandbox} report={report} />}
          </div>
          {unit && <UnitPanel name={name} report={report} unit={unit} about={of.get(unit.id)} living={living} />}
        </div>
      )}
    </>
  );
}

/** The last value that was good: what has been seen of a sandbox is still shown when it has ended. */
function useLast<T>(value: T, good: boolean): T {
  const last = useRef(value);
  if (good) last.current = value;
  return last.current;
}

const NONE: readonly Unit[] = [];

/** Its units, from its report; before its host has taken it over from its plan, and once it has ended from its history.
 * Null as long as nobody knows.
 */
function useUnits(name: string, report: Report | null, over: boolean, plan: Plan | null, unplanned: string): readonly Unit[] | null {
  const told = report?.units ?? NONE;
  const before = useLast<readonly Unit[]>(told, told.length > 0);
  const { found: moves, fault } = useAsked<Move[]>(over && report ? below("sandboxes", name, "history") : null, report?.version);
  return useMemo(() => {
    if (over && moves) return fromHistory(moves, before);
    if (before.length || fault) return before;
    if (unplanned && !over) return NONE;
    return over || !plan ? null : planned(plan);
  }, [over, moves, before, plan, unplanned, fault]);
}

function Missing({ name }: { name: string }): JSX.Element {
  return (
    <>
      <div class="head">
        <Heading title={name}>
          <Text>{name}</Text>
        </Heading>
      </div>
      <p class="nothing">
        There is no sandbox of this name, and none has ended {cluster() ? "since this page is served" : "in the last week"}.
      </p>
    </>
  );
}

export function tone(report: Report, sandbox: Sandbox | null): Tone {
  if (report.ready) return (report.unserved ?? []).length ? "warning" : "ready";
  const known = sandbox?.progress.tone;
  return known && known !== "progress" ? (known as Tone) : report.phase === "abandoned" ? "warning" : report.phase === "cleaned" ? "ready" : "working";
}

function Standing({ report, sandbox }: { report: Report | null; sandbox: Sandbox | null }): JSX.Element {
  const now = useNow();
  if (!report) return <p class="standing">Loading…</p>;
  const at = tone(report, sandbox);
  const over = report.phase === "cleaned" || report.phase === "abandoned";
  const end = sandbox?.status.scheduledDeleteTime;
  return (
    <div class="standing">
      <p role="status">
        <State state={at}>{over ? "ended" : report.closed ? "ending" : TONE_WORDS[at]}</State>
        <b>{report.reason || report.phase}</b>
      </p>
      <p class="aside">
        {report.total ? `${report.done} of ${report.total} · ` : ""}
        {report.bornAt ? `${roughly(now - report.bornAt)} old` : ""}
        {end && !report.closed ? ` · ${duration(Date.parse(end) - now)} left` : ""}
      </p>
      <p class="message">
        <Text>{report.message ?? ""}</Text>
      </p>
    </div>
  );
}

/** What holds it up, down to the root. */
function Why({ name, report }: { name: string; report: Report }): JSX.Element | null {
  const wanted = !report.ready && report.reason !== "Cleaned";
  const { found } = useAsked<Blocker>(wanted ? below("sandboxes", name, "why") : null, report.version);
  return (
    <section class="why" aria-labelledby="why" tabIndex={0}>
      <h2 id="why">Why</h2>
      {wanted && found?.subject ? (
        <ul>
          <Cause blocker={found} />
        </ul>
      ) : (
        <p class="aside">{report.ready ? "Nothing holds it up: it is as wished for." : "Nothing holds it up."}</p>
      )}
    </section>
  );
}

function Cause({ blocker }: { blocker: Blocker }): JSX.Element {
  const deeper = blocker.because ?? [];
  const unit = blocker.subject?.startsWith("sandbox ") ? "" : (blocker.subject ?? "");
  return (
    <li>
      {unit ? (
        <a href={withQuery({ unit })}>
          <Text>{unit}</Text>
        </a>
      ) : (
        <Text>{blocker.subject ?? ""}</Text>
      )}{" "}
      <b>{blocker.reason}</b> <Text>{blocker.message ?? ""}</Text>
      {blocker.since ? <span class="aside"> since {moment(blocker.since)}</span> : null}
      {blocker.next ? (
        <p class="next">
          What to do: <Text>{blocker.next}</Text>
        </p>
      ) : null}
      {deeper.length > 0 && (
        <ul>
          {deeper.map((each) => (
            <Cause key={each.subject} blocker={each} />
          ))}
        </ul>
      )}
    </li>
  );
}

function Facts({ sandbox, report }: { sandbox: Sandbox; report: Report | null }): JSX.Element {
  const { description = "", labels = {} } = spec(sandbox);
  const urls = sandbox.endpoints.map((each) => ({ name: String(each["name"] ?? ""), url: String(each["url"] ?? "") }));
  return (
    <section aria-labelledby="facts">
      <h2 id="facts">About it</h2>
      <dl>
        {description && (
          <>
            <dt>What</dt>
            <dd>
              <Text>{description}</Text>
            </dd>
          </>
        )}
        <dt>{sandbox.namespace ? "Namespace" : "Host"}</dt>
        <dd>
          <Text>{hostOf(sandbox)}</Text>
        </dd>
        <dt>Created</dt>
        <dd>{moment(Date.parse(sandbox.createdAt))}</dd>
        <dt>Routing key</dt>
        <dd>
          <code>{sandbox.routingKey}</code>
        </dd>
        {Object.keys(labels).length > 0 && (
          <>
            <dt>Labels</dt>
            <dd>
              <Labels labels={labels} />
            </dd>
          </>
        )}
        {urls.length > 0 && (
          <>
            <dt>Endpoints</dt>
            <dd>
              {urls.map((each) => (
                <div key={each.name}>
                  <Text>{each.name}</Text>: <code><Text>{each.url}</Text></code>
                </div>
              ))}
            </dd>
          </>
        )}
        {report?.closed && (
          <>
            <dt>Ended by</dt>
            <dd>
              <Text>{[report.closed.reason, report.closed.message, report.closed.by].filter(Boolean).join(", ")}</Text>
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}
