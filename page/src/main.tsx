/** The page: sign-in, the view for the current address, and the parts that all views share. */
import { render, type JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Attention, useConcerns, type Concerns } from "./attention";
import { Refused, maySeeLeakChecks, plainCluster, request, signedIn, words } from "./api";
import { GroupView } from "./group";
import { GroupList } from "./groups";
import { LeakCheckList, LeakCheckView } from "./leaks";
import { List } from "./list";
import { useLive, type Live } from "./live";
import { Hosts } from "./hosts";
import { Plugins } from "./plugins";
import { PoolView } from "./pool";
import { PoolList } from "./pools";
import { EndedView } from "./ended";
import { go, href, usePlace, type Place } from "./router";
import { isTyping } from "./rows";
import { SandboxView } from "./sandbox";
import type { Session } from "./types";
import { Dialog, Fault, Heading, Text } from "./ui";

function App(): JSX.Element {
  const place = usePlace();
  const [session, setSession] = useState<Session | null>(null);
  const [fault, setFault] = useState<{ status: number; text: string } | null>(null);
  useEffect(() => {
    const out = (): void => {
      setSession(null);
      setFault({ status: 401, text: "" });
    };
    window.addEventListener("signed-out", out);
    void enter().then(
      (found) => {
        signedIn(found);
        setSession(found);
      },
      (refused: unknown) => setFault({ status: refused instanceof Refused ? refused.status : 0, text: words(refused) }),
    );
    return () => window.removeEventListener("signed-out", out);
  }, []);
  if (session) return <SignedIn session={session} place={place} />;
  return <main id="main">{fault && <SignIn fault={fault} />}</main>;
}

/** Load the session. If the address contains a sign-in code (after the #), use it first and remove it from the address immediately. `?to=` names the view to show. */
async function enter(): Promise<Session> {
  const code = location.pathname === "/page/enter" ? location.hash.slice(1) : "";
  if (!code) return request<Session>("GET", "/page/session");
  const to = new URLSearchParams(location.search).get("to") ?? "sandboxes";
  go(href(to.split("/")), "replace");
  return request<Session>("POST", "/page/enter", { code });
}

function SignIn({ fault }: { fault: { status: number; text: string } }): JSX.Element {
  const linkWasBad = fault.text.startsWith("this link");
  return (
    <div class="sign-in">
      <Heading title="Sign in">Sign in</Heading>
      {fault.status === 401 && !linkWasBad ? null : <Fault>{fault.text}</Fault>}
      <p>Open this page with a single-use link. Create one with:</p>
      <pre>dayfly page</pre>
      <p class="aside">
        For a server that you have logged in to: <code>dayfly page --server NAME</code>. For a cluster without a server:{" "}
        <code>dayfly page --context NAME</code>; if that is already running, press Enter there for another link.
      </p>
    </div>
  );
}

const VIEWS: [string, string][] = [
  ["sandboxes", "Sandboxes"],
  ["routegroups", "Route groups"],
  ["pools", "Pools"],
  ["leaks", "Leaks"],
  ["attention", "Needs attention"],
  ["plugins", "Plugins"],
  ["hosts", "Hosts"],
  ["ended", "Ended"],
];

function SignedIn({ session, place }: { session: Session; place: Place }): JSX.Element {
  const live = useLive();
  const [help, setHelp] = useState(false);
  const view = place.parts[0] || "sandboxes";
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "?") setHelp(true);
      else if (event.key === "/") {
        event.preventDefault();
        const search = document.getElementById("search");
        if (search) search.focus();
        else {
          go(href(["sandboxes"]));
          setTimeout(() => document.getElementById("search")?.focus());
        }
      }
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  }, []);
  useEffect(() => document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [view]);
  const concerns = useConcerns(live);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header>
        <a class="brand" href={href(["sandboxes"])} aria-label="Dayfly, all sandboxes">
          <img src="/page/dayfly.svg" alt="" width="24" height="24" /> Dayfly
        </a>
        <nav aria-label="Views">
          {VIEWS.filter(([path]) => isOffered(path, session)).map(([path, title]) => (
            <a key={path} href={href([path])} aria-current={path === view ? "page" : undefined}>
              {title}
              {path === "attention" && concerns.found?.length ? <span class="badge">{concerns.found.length}</span> : null}
            </a>
          ))}
        </nav>
        <div class="me">
          <span class="who">
            <Text>{`${session.name} (${session.place ? whereabouts(session.place) : session.role})`}</Text>
          </span>
          <button type="button" class="quiet" aria-label="Help and keys" onClick={() => setHelp(true)}>
            ?
          </button>
          <button type="button" class="quiet" onClick={() => void signOut()}>
            Sign out
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        <p class={`offline ${live.connected ? "" : "shown"}`} role="status">
          {live.connected ? "" : `${plainCluster() ? "dayfly page is no longer running" : "The server cannot be reached"}; what is shown may be out of date.`}
        </p>
        <Fault>{live.fault && `${live.fault}${live.synced ? " What is shown may be out of date." : ""}`}</Fault>
        {view === "routegroups" && <Fault>{live.groups.fault && `${live.groups.fault}${live.groups.synced ? " What is shown may be out of date." : ""}`}</Fault>}
        <View view={view} place={place} live={live} concerns={concerns} />
      </main>
      {help && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

function isOffered(view: string, session: Session): boolean {
  return view === "leaks" ? maySeeLeakChecks() : !["hosts", "routegroups"].includes(view) || !session.place;
}

/** The context and namespace of a cluster's page. */
function whereabouts({ context, namespace }: { context: string; namespace: string }): string {
  return `${context}, ${namespace || "all namespaces"}`;
}

function View({ view, place, live, concerns }: { view: string; place: Place; live: Live; concerns: Concerns }): JSX.Element {
  const name = place.parts[1] ?? "";
  const uid = place.query.get("uid") ?? "";
  if (view === "sandboxes" && name) return <SandboxView key={`${name} ${uid}`} name={name} place={place} live={live} />;
  if (view === "sandboxes") return <List live={live} place={place} />;
  if (view === "routegroups" && name) return <GroupView key={`${name} ${uid}`} name={name} place={place} live={live} />;
  if (view === "routegroups") return <GroupList live={live} place={place} />;
  if (view === "pools") return name ? <PoolView key={name} name={name} live={live} /> : <PoolList live={live} place={place} />;
  if (view === "leaks" && maySeeLeakChecks()) return name ? <LeakCheckView key={name} name={name} /> : <LeakCheckList />;
  if (view === "attention") return <Attention {...concerns} />;
  if (view === "plugins") return <Plugins place={place} />;
  if (view === "hosts" && !plainCluster()) return <Hosts live={live} concerns={concerns.found ?? []} />;
  if (view === "ended") return <EndedView live={live} place={place} />;
  return (
    <>
      <Heading title="Not found">Not found</Heading>
      <p class="nothing">There is nothing at this address.</p>
    </>
  );
}

async function signOut(): Promise<void> {
  try {
    await request("DELETE", "/page/session");
  } finally {
    window.dispatchEvent(new Event("signed-out"));
  }
}

const KEYS: [string, string][] = [
  ["j, k", "next and previous sandbox, route group or pool"],
  ["Enter", "open it"],
  ["/", "filter sandboxes, route groups or pools"],
  ["Esc", "close a unit or a dialog"],
  ["?", "this help"],
];

const TERMS: [string, string][] = [
  ["word", "in a name, message, host, label or description"],
  ["team=a", "with this label; team= for any value"],
  ["is:failed", "the state: stuck, failed, warning, blocked, working or ready"],
  ["on:name", "on this host, or in this namespace"],
  ["has:name", "route groups that contain this sandbox"],
];

function Help({ onClose }: { onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keys and filters" onClose={onClose}>
      <Pairs of={KEYS} />
      <h3>Filter terms</h3>
      <Pairs of={TERMS} />
      <form method="dialog">
        <p class="buttons">
          <button class="main">Close</button>
        </p>
      </form>
    </Dialog>
  );
}

function Pairs({ of }: { of: [string, string][] }): JSX.Element {
  return (
    <dl>
      {of.map(([key, what]) => (
        <>
          <dt>
            <kbd>{key}</kbd>
          </dt>
          <dd>{what}</dd>
        </>
      ))}
    </dl>
  );
}

const root = document.getElementById("page");
if (root) render(<App />, root);
