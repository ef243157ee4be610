/** The view "Needs attention", most severe first. */
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { may, orgPath } from "./api";
import { toneOf } from "./filter";
import { useQuery, useNow, type Live } from "./live";
import { Advice, Offering, Question, type Asked, type Offers } from "./questions";
import { href } from "./router";
import { duration, moment, roughly } from "./text";
import type { Concern } from "./types";
import { Fault, Heading, Prose, State, Text } from "./ui";

const KINDS: Record<Concern["kind"], [title: string, state: string]> = {
  stuck: ["Cleanup is stuck", "stuck"],
  failed: ["Failed", "failed"],
  silent: ["Silent cluster", "warning"],
  held: ["Blocked", "trouble"],
  leak: ["Leaks", "warning"],
  unknown: ["Outcome unknown", "unknown"],
  ignored: ["Partly ignored", "warning"],
  expiring: ["About to expire", "trouble"],
  abandoned: ["Abandoned", "stopped"],
};

const POLL_INTERVAL_MS = 10_000;

export interface Concerns {
  /** Null until the server has answered. */
  found: Concern[] | null;
  fault: string;
}

/** All concerns. The badge, the view and the hosts use the same response. The first request waits for the lists, which people see first. */
export function useConcerns(live: Live): Concerns {
  const tones = [...live.all.values(), ...live.groups.all.values(), ...live.pools.all.values()].map(toneOf);
  const changed = ["failed", "warning", "trouble"].map((tone) => tones.filter((each) => each === tone).length);
  const path = live.synced || live.fault || !live.connected ? orgPath("attention") : null;
  return useQuery<Concern[]>(path, [tones.length, ...changed].join(), POLL_INTERVAL_MS);
}

export function Attention({ found, fault }: Concerns): JSX.Element {
  const now = useNow();
  return (
    <>
      <div class="head">
        <Heading title="Needs attention">Needs attention</Heading>
        <p class="count" role="status">
          {found ? (found.length === 1 ? "1 entry" : `${found.length} entries`) : "Loading…"}
        </p>
      </div>
      <Fault>{fault}</Fault>
      {found && !found.length && <p class="nothing">Nothing needs attention: no cleanup is stuck, and all outcomes are known.</p>}
      <ul class="concerns">
        {(found ?? []).map((each) => (
          <li key={`${each.kind} ${each.subject} ${each.since}`}>
            <One concern={each} now={now} />
          </li>
        ))}
      </ul>
    </>
  );
}

function One({ concern, now }: { concern: Concern; now: number }): JSX.Element {
  const [title, state] = KINDS[concern.kind];
  const unit = ["unknown", "stuck", "held"].includes(concern.kind) ? (concern.units?.[0] ?? "") : "";
  const uid = concern.uid ?? "";
  const view = concern.check ? ["leaks", concern.check] : concern.pool ? ["pools", concern.pool] : concern.group ? ["routegroups", concern.group] : ["sandboxes", concern.sandbox ?? ""];
  const name = view[1] ?? "";
  const [asked, setAsked] = useState<Asked | null>(null);
  const offers = useMemo<Offers>(
    () => ({ allows: () => may("member"), ask: setAsked, logOf: (id) => href(view, { unit: id, uid }) }),
    [view.join("/"), uid],
  );
  return (
    <>
      <p class="what">
        <State state={state}>{title}</State>{" "}
        {name ? (
          <a href={href(view, concern.pool || concern.check ? {} : { unit, uid })}>
            <Text>{concern.subject}</Text>
          </a>
        ) : (
          <Text>{concern.subject}</Text>
        )}{" "}
        {concern.since ? <span class="aside">for {roughly(now - concern.since)}</span> : null}
      </p>
      <p>
        <span title={concern.reason}>
          <Prose>{concern.message || concern.reason}</Prose>
        </span>
      </p>
      {concern.until ? (
        <p class="aside">
          {concern.kind === "expiring" ? "Ends" : "Resolved automatically"} at {moment(concern.until)}
          {concern.until > now ? `, in ${duration(concern.until - now)}` : ""}.
        </p>
      ) : null}
      {concern.kind === "abandoned" && (concern.units ?? []).length > 0 && (
        <p>
          May have left something:{" "}
          {(concern.units ?? []).map((id) => (
            <span class="chip" key={id}>
              <Text>{id}</Text>
            </span>
          ))}
        </p>
      )}
      <Offering.Provider value={concern.pool || concern.check || !name ? null : offers}>
        <Advice next={concern.next ?? ""} unit={concern.units?.[0] ?? ""} />
      </Offering.Provider>
      {asked && (
        <Question
          name={name}
          kind={concern.group ? "route group" : "sandbox"}
          at={orgPath(concern.group ? "routegroups" : "sandboxes", name)}
          asked={asked}
          retrying={[...(concern.units ?? [])]}
          onClose={() => setAsked(null)}
        />
      )}
    </>
  );
}
