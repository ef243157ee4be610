/** Requests to the server: JSON in, JSON out. A refusal becomes a `Refused` with the server's message. */
import type { Session } from "./types";

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

let session: Session | null = null;

export function signedIn(found: Session): void {
  session = found;
}

/** The cluster that this page shows (`dayfly page --context`); null if the page belongs to a server. */
export function plainCluster(): NonNullable<Session["place"]> | null {
  return session?.place ?? null;
}

/** Whether the session's role is sufficient for buttons of this role. The server checks every request again. */
export function may(role: "member" | "admin"): boolean {
  return session !== null && (session.role === "admin" || session.role === role);
}

/** Whether the key may change pools: a key with a scope may not. */
export function mayChangePools(): boolean {
  return may("member") && !session?.scoped;
}

/** Whether the key may see leak checks: a list has items of all sandboxes. */
export function maySeeLeakChecks(): boolean {
  return session !== null && !session.scoped && !session.place;
}

/** Whether the key may sweep and delete orphans. */
export function mayChangeLeakChecks(): boolean {
  return may("member") && maySeeLeakChecks();
}

export async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal, headers: Record<string, string> = {}): Promise<T> {
  return (await send<T>(method, path, body, signal, headers)).found;
}

/** The response of a GET with its ETag, for a later change with `If-Match`. */
export function tagged<T>(path: string): Promise<{ found: T; tag: string }> {
  return send<T>("GET", path, undefined, undefined, {});
}

async function send<T>(
  method: string,
  path: string,
  body: unknown,
  signal: AbortSignal | undefined,
  headers: Record<string, string>,
): Promise<{ found: T; tag: string }> {
  const init: RequestInit = {
    method,
    credentials: "same-origin",
    cache: "no-store",
    headers: { "Dayfly-Page": "1", ...headers, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
  };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  let response: Response;
  try {
    response = await fetch(`/api/v2${path}`, init);
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new Refused(0, "the server does not answer");
  }
  const found: unknown = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = (found as { error?: string }).error ?? `the server answered ${response.status} and gave no reason`;
    if (response.status === 401 && session) window.dispatchEvent(new Event("signed-out"));
    throw new Refused(response.status, error);
  }
  return { found: found as T, tag: response.headers.get("etag") ?? "" };
}

/** An address below the organisation. Each part is encoded as one path segment. */
export function orgPath(...parts: string[]): string {
  return ["/orgs", ...[session?.org ?? "", ...parts].map(encodeURIComponent)].join("/");
}

/** The address of a subresource, such as `.../report`. A `uid` in the query is kept, because it selects one of several
 * sandboxes with the same name.
 */
export function part(at: string, name: string, query: Record<string, string> = {}): string {
  const [path, own] = at.split("?");
  const all = new URLSearchParams([...new URLSearchParams(own), ...Object.entries(query)]);
  return `${path}/${name}${all.size ? `?${all.toString()}` : ""}`;
}

export function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return request<T>("GET", path, undefined, signal);
}

/** The message for the user about a failed request. */
export function words(fault: unknown): string {
  return fault instanceof Error ? fault.message : String(fault);
}
