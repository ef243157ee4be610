/** Leak checks: the list of checks, and one check with its findings, their creators and costs. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { mayChangeLeakChecks, orgPath, part, request } from "./api";
import { Fact } from "./facts";
import { useQuery, useNow } from "./live";
import { href } from "./router";
import { Table } from "./table";
import { moment, roughly } from "./text";
import type { LeakCheck, LeakFinding } from "./types";
import { Ask, Fault, Heading, Prose, State, Text } from "./ui";

const POLL_INTERVAL_MS = 10_000;
/** While a sweep is under way. */
const SWEEP_INTERVAL_MS = 1_000;

/** How a verdict looks. Orphans and missing resources are leaks. */
const SIGNS: Record<string, string> = { orphan: "failed", missing: "failed", ending: "stopped", unknown: "unknown" };

export function LeakCheckList(): JSX.Element {
  const { found, fault } = useQuery<LeakCheck[]>(`${orgPath("leakchecks")}?findings=false`, 0, POLL_INTERVAL_MS);
  const now = useNow(10_000);
  return (
    <>
      <div class="head">
        <Heading title="Leaks">Leaks</Heading>
        <p class="count" role="status">
          {found ? `${found.length} leak check${found.length === 1 ? "" : "s"}` : fault ? "Not known" : "Loading…"}
        </p>
      </div>
      <Fault>{fault}</Fault>
      {found && !found.length && (
        <p class="nothing">
          There are no leak checks. Create one with: <code>dayfly apply -f FILE</code>
        </p>
      )}
      {found && found.length > 0 && (
        <Table
          caption="Leak checks"
          rows={found}
          of={(each) => each.name}
          columns={[
            {
              title: "Check",
              cell: (each) => (
                <a href={href(["leaks", each.name])}>
                  <Text>{each.name}</Text>
                </a>
              ),
            },
            { title: "State", kind: "wide", cell: (each) => <Summary check={each} /> },
            { title: "Listed", kind: "age", cell: (each) => listed(each, now) },
            { title: "Host", kind: "host", cell: (each) => <Text>{hostOf(each)}</Text> },
          ]}
        />
      )}
    </>
  );
}

export function LeakCheckView({ name }: { name: string }): JSX.Element {
  const [changes, setChanges] = useState(0);
  const [sweeping, setSweeping] = useState(false);
  const at = orgPath("leakchecks", name);
  const { found, fault } = useQuery<LeakCheck>(at, changes, sweeping ? SWEEP_INTERVAL_MS : POLL_INTERVAL_MS);
  if (found && found.status.sweeping !== sweeping) setSweeping(found.status.sweeping);
  const act = async (plan: string): Promise<void> => {
    await request("POST", part(at, "sweep"), { plan });
    setSweeping(true);
    setChanges((count) => count + 1);
  };
  return (
    <>
      <div class="head">
        <Heading title={name}>
          <Text>{name}</Text>
        </Heading>
        {found && mayChangeLeakChecks() && <Actions check={found} act={act} />}
      </div>
      <Fault>{fault}</Fault>
      {found ? <Details check={found} /> : !fault && <p class="nothing">Loading…</p>}
    </>
  );
}

function Details({ check }: { check: LeakCheck }): JSX.Element {
  const now = useNow(10_000);
  const { status } = check;
  const { action = "report" } = check.spec as { action?: string };
  return (
    <>
      <div class="standing">
        <p role="status">
          <Summary check={check} />
        </p>
        <p class="aside">
          {status.sweeping ? "Listing now. " : ""}Last complete list: {listed(check, now)}
          {status.estimatedCost ? `. Orphans have cost about ${status.estimatedCost} since their creation` : ""}.
        </p>
        {status.left ? <p class="message">{status.left} resources are too many for one sweep, so the check deletes nothing until you apply a plan.</p> : null}
        {status.applied && status.applied !== "done" && (
          <p class="message">
            The last plan: <Prose>{status.applied}</Prose>.
          </p>
        )}
      </div>
      <Fault>{status.error ? `The last sweep has no complete list: ${status.error}` : ""}</Fault>
      <section aria-labelledby="findings">
        <h2 id="findings">Findings</h2>
        {status.findings?.length ? (
          <Findings findings={status.findings} now={now} />
        ) : (
          <p class="aside">{status.listedAt && !status.error ? "Every item in the list belongs to a living sandbox." : "None are known without a complete list."}</p>
        )}
      </section>
      <section aria-labelledby="facts">
        <h2 id="facts">Details</h2>
        <dl>
          <Fact title="Plugin">
            <a href={href(["plugins", check.plugin])}>
              <Text>{check.plugin}</Text>
            </a>
          </Fact>
          <Fact title="Host">
            <Text>{hostOf(check)}</Text>
          </Fact>
          <Fact title="Orphans">{action === "delete" ? "deleted by each sweep" : "reported only"}</Fact>
          {Object.entries((check.spec.params ?? {}) as Record<string, string>).map(([key, value]) => (
            <Fact key={key} title={`Param ${key}`}>
              <Text>{value}</Text>
            </Fact>
          ))}
        </dl>
      </section>
    </>
  );
}

/** The number of findings by verdict, or that there is no list. */
function Summary({ check }: { check: LeakCheck }): JSX.Element {
  const { counts = {}, error, listedAt } = check.status;
  const leaks = (counts.orphan ?? 0) + (counts.missing ?? 0);
  const shown = ["orphan", "missing", "unknown", "foreign", "ending", "held"].filter((verdict) => counts[verdict]);
  const state = error ? "failed" : leaks ? "warning" : listedAt ? "ready" : "waiting";
  const word = error ? "no list" : leaks ? "leaks" : listedAt ? "no leaks" : "has not listed yet";
  return (
    <>
      <State state={state}>{word}</State> <span class="aside">{shown.map((verdict) => `${counts[verdict]} ${verdict}`).join(", ")}</span>
    </>
  );
}

function Findings({ findings, now }: { findings: readonly LeakFinding[]; now: number }): JSX.Element {
  return (
    <Table
      caption="Findings of the check, deletable orphans first"
      rows={findings.map((each, number) => ({ ...each, number }))}
      of={(each) => String(each.number)}
      columns={[
        { title: "Name", cell: (each) => <Text>{each.name}</Text> },
        { title: "Verdict", cell: (each) => <State state={SIGNS[each.verdict] ?? ""}>{each.verdict}</State> },
        { title: "Creator", kind: "by", cell: (each) => <Creator finding={each} />, tip: (each) => each.createdBy ?? "" },
        { title: "Age", kind: "age", cell: (each) => (each.createdAt ? roughly(now - Date.parse(each.createdAt)) : "–"), tip: createdAt },
        { title: "Cost", kind: "left", cell: (each) => each.estimatedCost || "–" },
        { title: "Reason", kind: "reason", cell: (each) => <Prose>{each.reason ?? ""}</Prose>, tip: (each) => each.reason ?? "" },
      ]}
    />
  );
}

/** The key and the sandbox for which something was made, if the server has a record of them. */
function Creator({ finding: { createdBy = "", sandbox = "" } }: { finding: LeakFinding }): JSX.Element {
  if (!sandbox) return <>–</>;
  return (
    <>
      <Text>{createdBy || "unknown key"}</Text>, <a href={href(["sandboxes", sandbox])}>{<Text>{sandbox}</Text>}</a>
    </>
  );
}

function Actions({ check, act }: { check: LeakCheck; act: (plan: string) => Promise<void> }): JSX.Element {
  // The plan that the dialog shows: a later list must not change what is confirmed.
  const [asked, setAsked] = useState<{ plan: string; items: LeakFinding[] } | null>(null);
  const [fault, setFault] = useState("");
  const { plan = "", findings = [] } = check.status;
  const sweep = (): void => void act("").then(() => setFault(""), (refused: Error) => setFault(refused.message));
  return (
    <div class="actions" role="group" aria-label="Actions">
      <button type="button" disabled={check.status.sweeping} onClick={sweep}>
        Sweep now
      </button>
      {plan && (
        <button type="button" class="danger" onClick={() => setAsked({ plan, items: findings.filter((each) => each.deletable) })}>
          Delete orphans
        </button>
      )}
      <Fault>{fault}</Fault>
      {asked && (
        <Ask
          title={`Delete ${asked.items.length} ${asked.items.length === 1 ? "item" : "items"}?`}
          verb="Delete"
          danger
          onClose={() => setAsked(null)}
          act={() => act(asked.plan)}
        >
          <p>The check lists again. If it finds exactly these orphans, the delete steps of their plugins run. Otherwise nothing is deleted.</p>
          <ul class="refused" tabIndex={0} aria-label="Will be deleted">
            {asked.items.map((each) => (
              <li key={each.name}>
                <Text>{each.name}</Text>{" "}
                <span class="aside">
                  resource <Text>{each.id ?? ""}</Text> of <Text>{each.plugin ?? ""}</Text>
                </span>
              </li>
            ))}
          </ul>
        </Ask>
      )}
    </div>
  );
}

function hostOf(check: LeakCheck): string {
  return String(check.spec.cluster ?? "");
}

function listed(check: LeakCheck, now: number): string {
  const at = check.status.listedAt;
  return at ? `${roughly(now - Date.parse(at))} ago` : "never";
}

function createdAt(finding: LeakFinding): string {
  return finding.createdAt ? moment(Date.parse(finding.createdAt)) : "";
}
