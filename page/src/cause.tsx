/** Why an object is not ready, down to the root cause, with advice. */
import type { JSX } from "preact";
import { Advice } from "./questions";
import { withQuery } from "./router";
import { moment } from "./text";
import type { Blocker } from "./types";
import { Prose, Text } from "./ui";

/** The blocker of this unit, searched in the whole tree; null if the unit blocks nothing. */
export function causeOf(unit: string, blocker: Blocker | null): Blocker | null {
  if (!blocker || blocker.subject === unit) return blocker;
  for (const each of blocker.because ?? []) {
    const found = causeOf(unit, each);
    if (found) return found;
  }
  return null;
}

interface Props {
  blocker: Blocker;
  /** A subject that is already displayed here and gets no link. */
  root: string;
  /** Whether units have a panel on this page. */
  linksUnits?: boolean;
}

export function Cause({ blocker, root, linksUnits = true }: Props): JSX.Element {
  const deeper = blocker.because ?? [];
  // Possible leftovers of an abandoned cleanup are named by their resource, which has no panel.
  const unit = !linksUnits || blocker.subject === root || blocker.reason === "LeftoversPossible" ? "" : (blocker.subject ?? "");
  return (
    <li>
      {unit ? (
        <a href={withQuery({ unit })}>
          <Text>{unit}</Text>
        </a>
      ) : (
        <Text>{blocker.subject ?? ""}</Text>
      )}
      {": "}
      <span title={blocker.reason}>
        <Prose>{blocker.message || (blocker.reason ?? "")}</Prose>
      </span>
      {blocker.since ? <span class="aside"> since {moment(blocker.since)}</span> : null}
      <Advice next={blocker.next ?? ""} unit={blocker.subject ?? ""} />
      {deeper.length > 0 && (
        <ul>
          {deeper.map((each) => (
            <Cause key={each.subject} blocker={each} root={root} linksUnits={linksUnits} />
          ))}
        </ul>
      )}
    </li>
  );
}
