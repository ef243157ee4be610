/** One sandbox: its run and its details. */
import type { JSX } from "preact";
import { plainCluster } from "./api";
import { About, Fact, LabelFacts } from "./facts";
import { spec } from "./filter";
import { useGroupsOf } from "./groups";
import type { Live } from "./live";
import { href, qualify, type Place } from "./router";
import { Run } from "./run";
import type { ResourceStatus, Sandbox } from "./types";
import { Text } from "./ui";

export function SandboxView({ name, place, live }: { name: string; place: Place; live: Live }): JSX.Element {
  const uid = place.query.get("uid") ?? "";
  const found = (!uid && live.all.get(name)) || null;
  const missing = `There is no sandbox of this name, and none has ended ${plainCluster() ? "since this page is served" : "in the last week"}.`;
  return (
    <Run
      subject={{ plural: "sandboxes", kind: "sandbox", name, uid }}
      place={place}
      found={found}
      missing={missing}
      facts={() => found && <Facts sandbox={found} live={live} />}
    />
  );
}

function Facts({ sandbox, live }: { sandbox: Sandbox; live: Live }): JSX.Element {
  const { description = "", labels = {} } = spec(sandbox);
  const groups = useGroupsOf(sandbox.name, live);
  const pooled = sandbox.status.resources ?? [];
  return (
    <About found={sandbox} description={description}>
      <LabelFacts labels={labels} />
      {groups.length > 0 && (
        <Fact title="Route groups">
          {groups.map((name) => (
            <a key={name} class="chip" href={href(["routegroups", name])}>
              <Text>{name}</Text>
            </a>
          ))}
        </Fact>
      )}
      {pooled.length > 0 && (
        <Fact title="Resources">
          {pooled.map((each) => (
            <span key={each.name} class="chip">
              <Text>{each.name}</Text>: <Source sandbox={sandbox.name} resource={each} />
            </span>
          ))}
        </Fact>
      )}
    </About>
  );
}

/** The source of a resource: a member of a pool, and whether it was ready when the sandbox took it, or a shared parent. */
function Source({ sandbox, resource }: { sandbox: string; resource: ResourceStatus }): JSX.Element {
  const { member = "", pool = "", parent = "", hit = false } = resource;
  if (parent) {
    return (
      <>
        shares <Text>{parent}</Text>
      </>
    );
  }
  return (
    <>
      {pool ? (
        <a href={href(["pools", qualify(pool, sandbox)])}>
          <Text>{member}</Text>
        </a>
      ) : (
        <Text>{member}</Text>
      )}{" "}
      ({hit ? "hit" : "miss"})
    </>
  );
}
