/** Why something is not as it is wished for, down to the root and with what can be done. */
import type { JSX } from "preact";
import { withQuery } from "./router";
import { moment } from "./text";
import type { Blocker } from "./types";
import { Prose, Text } from "./ui";

/** What is said of that unit, wherever it stands below the blocker; null for one that holds nothing up. */
export function causeOf(unit: string, blocker: Blocker | null): Blocker | null {
  if (!blocker || blocker.subject === unit) return blocker;
  for (const each of blocker.because ?? []) {
    const found = causeOf(unit, each);
    if (found) return found;
  }
  return null;
}

/** `root`: a subject that is told about here anyway, and leads nowhere. */
export function Cause({ blocker, root }: { blocker: Blocker; root: string }): JSX.Element {
  const deeper = blocker.because ?? [];
  // What may be left after an abandoned cleanup is named by its resource, which has no panel.
  const unit = blocker.subject === root || blocker.reason === "LeftoversPossible" ? "" : (blocker.subject ?? "");
  return (
    <li>
      {unit ? (
        <a href={withQuery({ unit })}>
          <Text>{unit}</Text>
        </a>
      ) : (
        <Text>{blocker.subject ?? ""}</Text>
      )}{" "}
      <b>{blocker.reason}</b> <Prose>{blocker.message ?? ""}</Prose>
      {blocker.since ? <span class="aside"> since {moment(blocker.since)}</span> : null}
      {blocker.next ? (
        <p class="next">
          What to do: <Prose>{blocker.next}</Prose>
        </p>
      ) : null}
      {deeper.length > 0 && (
        <ul>
          {deeper.map((each) => (
            <Cause key={each.subject} blocker={each} root={root} />
          ))}
        </ul>
      )}
    </li>
  );
}
