/** The facts about a sandbox or route group, in pairs of name and value. */
import type { ComponentChildren, JSX } from "preact";
import { creatorOf, hostOf } from "./filter";
import { moment, safeUrl } from "./text";
import type { SandboxOrGroup } from "./types";
import { Labels, Text } from "./ui";

export function Fact({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </>
  );
}

interface Props {
  found: SandboxOrGroup;
  description: string;
  children: ComponentChildren;
}

export function About({ found, description, children }: Props): JSX.Element {
  return (
    <section aria-labelledby="facts">
      <h2 id="facts">Details</h2>
      <dl>
        {description && (
          <Fact title="Description">
            <Text>{description}</Text>
          </Fact>
        )}
        <Fact title={found.namespace ? "Namespace" : "Host"}>
          <Text>{hostOf(found) || "all"}</Text>
        </Fact>
        <Fact title="Created">
          {moment(Date.parse(found.createdAt))}
          {creatorOf(found) && (
            <>
              {" "}
              by <Text>{creatorOf(found)}</Text>
            </>
          )}
        </Fact>
        <Fact title="Routing key">
          <code>
            <Text>{found.routingKey}</Text>
          </code>
        </Fact>
        {children}
      </dl>
    </section>
  );
}

export function LabelFacts({ labels }: { labels: Record<string, string> }): JSX.Element | null {
  if (!Object.keys(labels).length) return null;
  return (
    <Fact title="Labels">
      <Labels labels={labels} />
    </Fact>
  );
}

/** The endpoints. Only http and https addresses become links. */
export function Endpoints({ endpoints }: { endpoints: Record<string, unknown>[] }): JSX.Element | null {
  if (!endpoints.length) return null;
  return (
    <section aria-labelledby="endpoints">
      <h2 id="endpoints">Endpoints</h2>
      {endpoints.map((each) => {
        const [name, target, url] = ["name", "target", "url"].map((key) => String(each[key] ?? ""));
        return (
          <div key={name} class="endpoint">
            <b>
              <Text>{name ?? ""}</Text>
            </b>{" "}
            {target && (
              <code>
                <Text>{target}</Text>
              </code>
            )}{" "}
            {url ? <Url url={url} /> : <span class="aside">has no address yet</span>}
          </div>
        );
      })}
    </section>
  );
}

function Url({ url }: { url: string }): JSX.Element {
  const address = safeUrl(url);
  const shown = (
    <code>
      <Text>{url}</Text>
    </code>
  );
  if (!address) return shown;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer nofollow">
      {shown}
    </a>
  );
}
