/** The common part of the pages of sandboxes and route groups: state, causes, graph, attempts, and the panel of a unit. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Actions, permitted, retryable } from "./actions";
import { orgPath, part } from "./api";
import { fromHistory } from "./attempts";
import { Cause } from "./cause";
import { Endpoints } from "./facts";
import { TONE_WORDS, toneOf, type Tone } from "./filter";
import { GraphView } from "./graph";
import { details, planned } from "./graph-model";
import { useQuery, useNow, useReport } from "./live";
import { readyOr } from "./messages";
import { AllOutputs, useAllOutputs } from "./outputs";
import { Offering, Question, type Asked, type Offers } from "./questions";
import { go, withQuery, type Place } from "./router";
import { Timeline } from "./timeline";
import { duration, moment, roughly } from "./text";
import type { Blocker, SandboxOrGroup, Move, Plan, Report, Subject, Unit } from "./types";
import { Fault, Heading, Prose, State, Text } from "./ui";
import { UnitPanel, unitInTrouble } from "./unit";

const OVER = ["cleaned", "abandoned"];

function addressOf({ plural, name, uid }: Subject): string {
  return orgPath(plural, name) + (uid ? `?uid=${encodeURIComponent(uid)}` : "");
}

interface Props {
  subject: Subject;
  place: Place;
  /** The object from the stream of changes, or null. */
  found: SandboxOrGroup | null;
  /** Content above the graph. */
  children?: ComponentChildren;
  /** Content below everything else, while the object exists. */
  facts: () => JSX.Element | null;
  /** The message if no object has this name. */
  missing: string;
}

export function Run({ subject, place, found, children, facts, missing: none }: Props): JSX.Element {
  const at = addressOf(subject);
  const { report, fault, missing } = useReport(at, found?.createdAt ?? "");
  const over = !report || OVER.includes(report.phase ?? "");
  const living = !over && !missing;
  const shown = living && !subject.uid ? found : null;
  // Only the forks of a plan can change.
  const ids = (report?.units ?? []).map((unit) => unit.id).join(" ");
  const { found: newest, fault: unplanned } = useQuery<Plan>(living && !subject.uid ? part(at, "plan") : null, ids);
  const plan = useLast(newest, newest !== null);
  const chosen = place.query.get("unit") ?? "";
  const of = useMemo(() => details(plan), [plan]);
  const units = useUnits(at, report, over, plan, unplanned);
  const unit = units?.find((each) => each.id === chosen);
  const wanted = report && (!report.ready || (report.unsupported ?? []).length > 0);
  const { found: blocker, fault: unexplained } = useQuery<Blocker>(wanted ? part(at, "why") : null, report?.version);
  const why = wanted && blocker?.subject ? blocker : null;
  const [asked, ask] = useState<Asked | null>(null);
  const offers: Offers = {
    allows: report && !subject.uid ? permitted(report, shown, subject.kind, hasSecrets(plan)) : () => false,
    ask,
    logOf: (id) => (units?.some((each) => each.id === id) && id !== chosen ? withQuery({ unit: id }) : ""),
  };
  useUnitInTrouble(report, units, chosen, report && shown ? tone(report, shown) : null);
  // Results come first if the sandbox is ready when it is opened. A later place would move everything below.
  const readyFirst = useFirst(report ? (report.ready ?? false) : null) ?? false;
  const { outputs, loaded } = useAllOutputs(at, report, living && subject.kind === "sandbox");
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && chosen && !document.querySelector("dialog[open]")) go(withQuery({ unit: "" }), "replace");
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, [chosen]);
  if (missing && !report) return <Missing name={subject.name}>{none}</Missing>;
  // Edges have no names without the plan. So the graph is drawn only when the plan has arrived, and nothing moves later.
  const drawn = report && units && (plan || unplanned || !living) && (loaded || !readyFirst);
  const results = shown && (
    <>
      <Endpoints endpoints={shown.endpoints} />
      <AllOutputs at={at} outputs={outputs} />
    </>
  );
  return (
    <Offering.Provider value={offers}>
      <div class="head">
        <Heading title={subject.name}>
          <Text>{subject.name}</Text>
        </Heading>
        {report && !subject.uid && <Actions subject={subject} at={at} report={report} found={shown} offers={offers} />}
      </div>
      <Standing report={report} found={shown} />
      <Fault>{report ? fault : ""}</Fault>
      {drawn && (
        <div class={unit ? "with-unit" : ""}>
          <div class="main-column">
            {readyFirst && results}
            {living && children}
            {units.length > 0 && <GraphView units={units} plan={plan} chosen={chosen} />}
            {!plan && living && unplanned && (
              <p class="aside">
                The outputs between its units and their configuration cannot be shown: <Prose>{unplanned}</Prose>
              </p>
            )}
            <Why blocker={why} report={report} fault={unexplained} />
            {units.length > 0 && <Timeline at={at} report={report} units={units} />}
            {!readyFirst && results}
            {shown && facts()}
          </div>
          {unit && (
            <UnitPanel at={at} report={report} unit={unit} why={why} whyLoaded={!wanted || !!blocker || !!unexplained} about={of.get(unit.id)} living={living} />
          )}
        </div>
      )}
      {asked && report && (
        <Question name={subject.name} kind={subject.kind} at={at} asked={asked} retrying={retryable(report)} onClose={() => ask(null)} />
      )}
    </Offering.Provider>
  );
}

/** The first value that is not null. */
function useFirst<T>(value: T | null): T | null {
  const first = useRef(value);
  first.current ??= value;
  return first.current;
}

/** Open the unit in trouble if the address names no unit. This happens once, so that the unit can be closed. */
function useUnitInTrouble(report: Report | null, units: readonly Unit[] | null, chosen: string, tone: Tone | null): void {
  const decided = useRef(chosen !== "");
  useLayoutEffect(() => {
    if (decided.current || !report || !units) return;
    // It opens only with the page: later it would move what the user reads.
    decided.current = report.ready ?? false;
    if (decided.current) return;
    const blocked = tone !== null && tone !== "ready" && tone !== "working";
    const unit = unitInTrouble(units, blocked ? (report.about ?? "") : "");
    decided.current = unit !== undefined || tone !== null || OVER.includes(report.phase ?? "");
    if (unit) go(withQuery({ unit: unit.id }), "replace");
  });
}

/** Whether a step reads a secret param, as far as known: a sensitive input without a source. */
function hasSecrets(plan: Plan | null): boolean {
  return !plan || [...details(plan).values()].some(({ inputs }) => (inputs ?? []).some((input) => input.sensitive && !input.source));
}

/** The last good value. It stays visible after the sandbox has ended. */
function useLast<T>(value: T, good: boolean): T {
  const last = useRef(value);
  if (good) last.current = value;
  return last.current;
}

const NONE: readonly Unit[] = [];

/** The units from the report. Before a host accepts the run they come from the plan, after its end from the history.
 * Null until one of these is known.
 */
function useUnits(at: string, report: Report | null, over: boolean, plan: Plan | null, unplanned: string): readonly Unit[] | null {
  const told = report?.units ?? NONE;
  const before = useLast<readonly Unit[]>(told, told.length > 0);
  const { found: moves, fault } = useQuery<Move[]>(over && report ? part(at, "history") : null, report?.version);
  return useMemo(() => {
    if (over && moves) return fromHistory(moves, before);
    if (before.length || fault) return before;
    if (unplanned && !over) return NONE;
    return over || !plan ? null : planned(plan);
  }, [over, moves, before, plan, unplanned, fault]);
}

function Missing({ name, children }: { name: string; children: string }): JSX.Element {
  return (
    <>
      <div class="head">
        <Heading title={name}>
          <Text>{name}</Text>
        </Heading>
      </div>
      <p class="nothing">{children}</p>
    </>
  );
}

function tone(report: Report, found: SandboxOrGroup | null): Tone {
  if (report.ready) return (report.unsupported ?? []).length ? "warning" : "ready";
  const known = found && toneOf(found);
  return known && known !== "ready" ? known : report.phase === "abandoned" ? "warning" : report.phase === "cleaned" ? "ready" : "working";
}

function Standing({ report, found }: { report: Report | null; found: SandboxOrGroup | null }): JSX.Element {
  const now = useNow();
  if (!report) return <p class="standing">Loading…</p>;
  const at = tone(report, found);
  const over = report.phase === "cleaned" || report.phase === "abandoned";
  const end = found?.status.scheduledDeleteTime;
  return (
    <div class="standing">
      <p role="status">
        <State state={at}>{over ? "ended" : report.closed && at === "working" ? "ending" : TONE_WORDS[at]}</State>
      </p>
      <p class="aside">
        {[
          report.total ? `${report.done} of ${report.total}` : "",
          report.bornAt ? `${roughly(now - report.bornAt)} old` : "",
          end && !report.closed ? `${duration(Date.parse(end) - now)} left` : "",
        ]
          .filter(Boolean)
          .join(" · ")}
        <EndedBy report={report} />
      </p>
      <p class="message" title={report.reason}>
        <Prose>{readyOr(report.reason ?? "", report.message ?? "", (report.units ?? []).some((unit) => unit.kind === "fork"))}</Prose>
      </p>
    </div>
  );
}

/** Who ended a run, when and why. */
function EndedBy({ report }: { report: Report }): JSX.Element | null {
  const request = report.abandon ?? report.closed;
  if (!request) return null;
  const { reason, message = "", by, at } = request;
  const why = message.toLowerCase() === reason.toLowerCase() ? "" : message;
  return (
    <span>
      {" · "}
      {report.abandon ? "abandoned" : reason === "Expired" ? "expired" : "deleted"}
      {by ? " by " : ""}
      <Text>{by ?? ""}</Text> at {moment(at)}
      {why ? ": " : ""}
      <Prose>{why}</Prose>
    </span>
  );
}

/** The cause of a blocked run, down to the root. */
function Why({ blocker, report, fault }: { blocker: Blocker | null; report: Report; fault: string }): JSX.Element {
  return (
    <section class="why" aria-labelledby="why" tabIndex={0}>
      <h2 id="why">Why</h2>
      {blocker ? (
        <ul>
          <Cause blocker={blocker} root={blocker.subject ?? ""} />
        </ul>
      ) : (
        <p class="aside">{report.ready ? "Nothing is blocked: the current state matches the spec." : fault ? <Prose>{fault}</Prose> : "Loading…"}</p>
      )}
    </section>
  );
}
