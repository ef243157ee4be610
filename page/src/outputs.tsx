/** The outputs of units. A sensitive value is shown after a click. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { may, part, plainCluster, request, words } from "./api";
import type { Details } from "./graph-model";
import { useQuery } from "./live";
import { withQuery } from "./router";
import type { Output, Report, Unit } from "./types";
import { Fault, Prose, Text } from "./ui";

interface Props {
  at: string;
  report: Report;
  unit: Unit;
  about: Details | undefined;
  living: boolean;
}

/** The outputs of one unit. */
export function Outputs({ at, report, unit, about, living }: Props): JSX.Element | null {
  const there = unit.outputs ?? [];
  // On the page of a cluster, the report has no names of outputs. They are in a Secret that the user may not be allowed to read.
  const denied = (report.denied ?? {})["outputs"] ?? "";
  const given = there.length > 0 || (plainCluster() !== null && unit.state === "succeeded" && unit.kind !== "fork" && unit.kind !== "route");
  const asks = living && given && may("member") && !denied;
  const path = asks ? part(at, "outputs", { masked: "true" }) : null;
  const { found, fault } = useQuery<Output[]>(path, report.version);
  const mine = (found ?? []).filter((each) => unitOf(each) === unit.id);
  const names = [...new Set([...(about?.outputs ?? []).map((each) => each.name), ...there, ...mine.map((each) => each.output)])];
  if (!names.length && !fault && !(denied && given)) return null;
  return (
    <section>
      <h3>Outputs</h3>
      <Fault>{fault}</Fault>
      {denied && given && (
        <p class="aside">
          Values cannot be shown: <Prose>{denied}</Prose>
        </p>
      )}
      <ul class="values">
        {names.map((output) => {
          const value = mine.find((each) => each.output === output);
          return (
            // The key includes unit and attempt, so that a revealed value is not shown for the output of another unit with the same name.
            <li key={`${unit.id} ${unit.attempt ?? 0} ${output}`}>
              <b>
                <Text>{output}</Text>
              </b>
              {value ? <Value at={at} unit={unit.id} output={value} /> : <code class="aside">{there.includes(output) || given ? "recorded" : "not yet"}</code>}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

/** The value of an output. A sensitive value is shown after a click, which the server records in its audit log. */
function Value({ at, unit, output }: { at: string; unit: string; output: Output }): JSX.Element {
  const [shown, setShown] = useState<Output | null>(null);
  const [fault, setFault] = useState("");
  const reveal = async (): Promise<void> => {
    try {
      setShown(await request<Output>("POST", part(at, "reveal"), { unit, output: output.output }));
    } catch (refused) {
      setFault(words(refused));
    }
  };
  const visible = output.sensitive ? shown : output;
  if (visible)
    return (
      <code>
        <Text>{visible.encoding === "utf-8" ? visible.value : `base64: ${visible.value}`}</Text>{" "}
        {output.sensitive && (
          <button type="button" class="quiet" onClick={() => setShown(null)}>
            Hide
          </button>
        )}
      </code>
    );
  return (
    <code>
      ••••••{" "}
      <button type="button" class="quiet" title={plainCluster() ? undefined : "This is recorded"} aria-label={`Reveal ${output.output}${plainCluster() ? "" : "; this is recorded"}`} onClick={() => void reveal()}>
        Reveal
      </button>
      <Fault>{fault}</Fault>
    </code>
  );
}

function unitOf({ resource, step }: Output): string {
  return `${resource ? `${resource}/` : ""}${step}`;
}

/** The outputs of all units of a ready sandbox. */
export function useAllOutputs(at: string, report: Report | null, wanted: boolean): { outputs: Output[]; loaded: boolean } {
  const readable = may("member") && !(report?.denied ?? {})["outputs"];
  const given = plainCluster() !== null || (report?.units ?? []).some((unit) => (unit.outputs ?? []).length > 0);
  const asks = wanted && readable && given && report?.ready;
  const { found, fault } = useQuery<Output[]>(asks ? part(at, "outputs", { masked: "true" }) : null, report?.version);
  return { outputs: (asks && found) || [], loaded: !asks || found !== null || fault !== "" };
}

export function AllOutputs({ at, outputs }: { at: string; outputs: Output[] }): JSX.Element | null {
  if (!outputs.length) return null;
  return (
    <section aria-labelledby="outputs">
      <h2 id="outputs">Outputs</h2>
      <ul class="values all" tabIndex={0} aria-labelledby="outputs">
        {outputs.map((each) => (
          <li key={`${unitOf(each)} ${each.output}`}>
            <span>
              <a href={withQuery({ unit: unitOf(each) })}>
                <Text>{unitOf(each)}</Text>
              </a>{" "}
              <b>
                <Text>{each.output}</Text>
              </b>
            </span>
            <Value at={at} unit={unitOf(each)} output={each} />
          </li>
        ))}
      </ul>
    </section>
  );
}
