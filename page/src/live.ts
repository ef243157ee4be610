/** Live data: all sandboxes, route groups and pools from the stream of changes, and the report of one of them. Requests
 * pause while the page is hidden.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, orgPath, get, part, words } from "./api";
import type { Group, Pool, Report, Sandbox } from "./types";

// Changes within this time are rendered together.
const BATCH_MS = 80;
const RETRY_AFTER_MS = 2000;

/** Whether the page is visible. A hidden page sends no requests, because browsers allow only six connections to a server. */
export function useVisible(): boolean {
  const [visible, setVisible] = useState(!document.hidden);
  useEffect(() => {
    const look = (): void => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  return visible;
}

/** The current time for all displayed ages; updated at most once a second. */
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now);
  const visible = useVisible();
  useEffect(() => {
    if (!visible) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [visible, everyMs]);
  return now;
}

/** All objects of one kind. */
export interface Kind<T> {
  all: Map<string, T>;
  /** Whether the full list has arrived at least once. */
  synced: boolean;
  /** The server's message if the data may be out of date or is missing. */
  fault: string;
}

export interface Live extends Kind<Sandbox> {
  groups: Kind<Group>;
  pools: Kind<Pool>;
  connected: boolean;
}

/** The objects of one kind, as the stream reports them. Events about groups and pools have a prefix. */
export class KindStream<T extends { name: string }> {
  private all = new Map<string, T>();
  /** The objects received since the stream restarted; null once that list is complete. */
  private fresh: Map<string, T> | null = new Map();
  private news = false;

  constructor(
    private readonly prefix: "" | "group-" | "pool-",
    private readonly blame: (error: string) => void,
    /** The event after all objects. The stream sends all pools before it ends the list of sandboxes. */
    private readonly synced = prefix === "pool-" ? "synced" : `${prefix}synced`,
  ) {}

  /** Whether the list is incomplete since the stream restarted. */
  get unfinished(): boolean {
    return this.fresh !== null;
  }

  /** Start a new list. An object that the stream does not send again is removed. */
  begin(): void {
    this.fresh = new Map();
  }

  listen(source: EventSource, soon: () => void, show: () => void): void {
    const on = <D>(kind: string, take: (data: D) => void): void =>
      source.addEventListener(this.prefix + kind, (event: MessageEvent<string>) => take(JSON.parse(event.data) as D));
    const changes = (act: (all: Map<string, T>) => void): void => {
      act(this.fresh ?? this.all);
      if (this.fresh) return;
      this.news = true;
      soon();
    };
    on<T>("changed", (each) => changes((all) => all.set(each.name, each)));
    on<{ name: string }>("deleted", ({ name }) => changes((all) => all.delete(name)));
    source.addEventListener(this.synced, () => {
      if (this.fresh) this.all = this.fresh;
      this.fresh = null;
      this.news = true;
      show();
    });
    on<{ error: string }>("trouble", ({ error }) => this.blame(error));
  }

  /** A copy of all objects if they have changed, else null. */
  take(): Map<string, T> | null {
    if (!this.news || this.fresh) return null;
    this.news = false;
    return new Map(this.all);
  }
}

type AnyKindStream = Pick<KindStream<Sandbox>, "unfinished" | "begin" | "listen">;

/** Connect a stream to its kinds. The browser may reopen the stream several times. */
export function listen(
  source: EventSource,
  kinds: readonly AnyKindStream[],
  tell: { soon: () => void; show: () => void; opened: () => void },
): void {
  const anew = (): void => kinds.forEach((kind) => kind.begin());
  source.addEventListener("open", () => {
    // A stream that broke off before `synced` has no event ID, so the server sends the full list again without a `reset`.
    if (kinds.some((kind) => kind.unfinished)) anew();
    tell.opened();
  });
  source.addEventListener("reset", anew);
  kinds.forEach((kind) => kind.listen(source, tell.soon, tell.show));
}

/** All sandboxes, route groups and pools of the organisation, from server-sent events. */
export function useLive(): Live {
  const none = { synced: false, fault: "" };
  const [live, setLive] = useState<Live>({
    ...none,
    all: new Map(),
    groups: { ...none, all: new Map() },
    pools: { ...none, all: new Map() },
    connected: true,
  });
  const heard = useRef({
    boxes: new KindStream<Sandbox>("", (fault) => setLive((last) => ({ ...last, fault }))),
    groups: new KindStream<Group>("group-", (fault) => setLive((last) => ({ ...last, groups: { ...last.groups, fault } }))),
    // Faults of pools are reported with those of sandboxes.
    pools: new KindStream<Pool>("pool-", () => undefined),
  });
  const visible = useVisible();
  useEffect(() => {
    if (!visible) return undefined;
    const { boxes, groups, pools } = heard.current;
    const kinds = [boxes, groups, pools];
    let timer = 0;
    let again = 0;
    let source: EventSource;
    const show = (): void => {
      clearTimeout(timer);
      timer = 0;
      const [all, grouped, pooled] = [boxes.take(), groups.take(), pools.take()];
      setLive((last) => ({
        ...last,
        ...(all ? { all, synced: true } : {}),
        groups: grouped ? { ...last.groups, all: grouped, synced: true } : last.groups,
        pools: pooled ? { ...last.pools, all: pooled, synced: true } : last.pools,
        connected: true,
      }));
    };
    const soon = (): void => {
      if (!timer) timer = window.setTimeout(show, BATCH_MS);
    };
    // A stream reports its faults when it opens, so the faults of an earlier stream may be outdated.
    const opened = (): void => setLive((last) => ({ ...last, fault: "", groups: { ...last.groups, fault: "" }, connected: true }));
    const open = (): void => {
      kinds.forEach((kind) => kind.begin());
      source = new EventSource(`/api/v2${orgPath("changes")}`);
      listen(source, kinds, { soon, show, opened });
      source.addEventListener("error", () => {
        setLive((last) => (last.connected ? { ...last, connected: false } : last));
        if (source.readyState === EventSource.CLOSED) {
          again = window.setTimeout(open, RETRY_AFTER_MS);
          // If the server answered with an error instead of a stream, this request reports the cause, for example an expired session.
          void get("/page/session").catch(() => undefined);
        }
      });
    };
    open();
    return () => {
      source.close();
      clearTimeout(timer);
      clearTimeout(again);
    };
  }, [visible]);
  return live;
}

export interface ReportState {
  report: Report | null;
  fault: string;
  missing: boolean;
}

const WAIT_S = 25;

/** The report at this address. The request is a long poll, and it also returns the report of an ended sandbox.
 *
 * `now` identifies the current owner of the name in the stream of changes. If it changes, a missing or ended report is requested again immediately.
 */
export function useReport(at: string, now: string): ReportState {
  const [told, setTold] = useState<ReportState>({ report: null, fault: "", missing: false });
  const visible = useVisible();
  const news = useRef(new AbortController());
  useEffect(() => {
    news.current.abort();
    news.current = new AbortController();
  }, [now]);
  useEffect(() => {
    if (!visible) return undefined;
    const stop = new AbortController();
    const follow = async (): Promise<void> => {
      let version = 0;
      while (!stop.signal.aborted) {
        const either = AbortSignal.any([stop.signal, news.current.signal]);
        try {
          const query: Record<string, string> = version ? { after: String(version), wait: String(WAIT_S) } : {};
          const report = await get<Report>(part(at, "report", query), stop.signal);
          if (stop.signal.aborted) return;
          const same = report.version === version;
          // A long poll for an ended sandbox returns immediately, so the loop pauses instead. A new owner of the name starts at version 0.
          const over = report.phase === "cleaned" || report.phase === "abandoned";
          version = over ? 0 : report.version || 1;
          setTold({ report, fault: "", missing: false });
          if (over || same) await pause(over ? WAIT_S * 1000 : 1000, over ? either : stop.signal);
        } catch (fault) {
          if (stop.signal.aborted) return;
          const missing = fault instanceof Refused && fault.status === 404;
          setTold((last) => ({ ...last, fault: words(fault), missing }));
          await pause(missing ? WAIT_S * 1000 : RETRY_AFTER_MS, missing ? either : stop.signal);
        }
      }
    };
    void follow();
    return () => stop.abort();
  }, [at, visible]);
  return told;
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    // A view may stay open for days. Without `removeEventListener` its signal would collect one listener for each pause.
    const over = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, ms);
    signal.addEventListener("abort", over);
  });
}

/** The response of a GET request. It is repeated when `when` changes, and every `everyMs` milliseconds if that is set. */
export function useQuery<T>(path: string | null, when: unknown = 0, everyMs = 0): { found: T | null; fault: string } {
  const [state, setState] = useState<{ path: string | null; found: T | null; fault: string }>({
    path,
    found: null,
    fault: "",
  });
  const visible = useVisible();
  useEffect(() => {
    if (!visible || path === null) return undefined;
    const stop = new AbortController();
    const ask = async (): Promise<void> => {
      do {
        try {
          const found = await get<T>(path, stop.signal);
          if (!stop.signal.aborted) setState({ path, found, fault: "" });
        } catch (fault) {
          if (!stop.signal.aborted)
            setState((last) => ({ path, found: last.path === path ? last.found : null, fault: words(fault) }));
        }
        if (everyMs) await pause(everyMs, stop.signal);
      } while (everyMs && !stop.signal.aborted);
    };
    void ask();
    return () => stop.abort();
  }, [path, when, everyMs, visible]);
  return state.path === path ? state : { found: null, fault: "" };
}
