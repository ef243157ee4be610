/** What lives on the server, kept up to date while somebody looks: all sandboxes and route groups, and one's report. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, below, get, part, words } from "./api";
import type { Group, Living, Report, Sandbox } from "./types";

// Several changes at once are one picture.
const GATHER_MS = 80;
const AGAIN_MS = 2000;

/** Whether anybody can see the page. A hidden one asks for nothing: browsers allow six connections to a server in all. */
export function useVisible(): boolean {
  const [visible, setVisible] = useState(!document.hidden);
  useEffect(() => {
    const look = (): void => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  return visible;
}

/** The time, at which ages are told: the same for all that is seen, once a second at most. */
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

/** All of a kind. */
export interface Kind<T> {
  all: Map<string, T>;
  /** Whether everything has come at least once. */
  synced: boolean;
  /** Why what is shown may be out of date, or nothing can be shown, in the server's own words. */
  fault: string;
}

export interface Live extends Kind<Sandbox> {
  groups: Kind<Group>;
  connected: boolean;
}

/** What a stream has said of a kind; events of groups have words of their own. */
export class Heard<T extends Living> {
  private all = new Map<string, T>();
  /** What has come since it was begun anew; null once that is all. */
  private fresh: Map<string, T> | null = new Map();
  private news = false;

  constructor(
    private readonly prefix: "" | "group-",
    private readonly blame: (error: string) => void,
  ) {}

  /** Whether what came since it was begun anew is not all yet. */
  get unfinished(): boolean {
    return this.fresh !== null;
  }

  /** Whatever is not said again is gone. */
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
    on("synced", () => {
      if (this.fresh) this.all = this.fresh;
      this.fresh = null;
      this.news = true;
      show();
    });
    on<{ error: string }>("trouble", ({ error }) => this.blame(error));
  }

  /** All, if that is news. */
  take(): Map<string, T> | null {
    if (!this.news || this.fresh) return null;
    this.news = false;
    return new Map(this.all);
  }
}

/** Keeps what a stream says; the browser may open it several times. */
export function listen(
  source: EventSource,
  { boxes, groups }: { boxes: Heard<Sandbox>; groups: Heard<Group> },
  tell: { soon: () => void; show: () => void; opened: () => void },
): void {
  const anew = (): void => {
    boxes.begin();
    groups.begin();
  };
  source.addEventListener("open", () => {
    // One that broke off before all had come is told everything once more, and not that it is: it has heard no id yet.
    if (boxes.unfinished || groups.unfinished) anew();
    tell.opened();
  });
  source.addEventListener("reset", anew);
  boxes.listen(source, tell.soon, tell.show);
  groups.listen(source, tell.soon, tell.show);
}

/** All sandboxes and route groups of the organisation by server-sent events. */
export function useLive(): Live {
  const none = { synced: false, fault: "" };
  const [live, setLive] = useState<Live>({ ...none, all: new Map(), groups: { ...none, all: new Map() }, connected: true });
  const heard = useRef({
    boxes: new Heard<Sandbox>("", (fault) => setLive((last) => ({ ...last, fault }))),
    groups: new Heard<Group>("group-", (fault) => setLive((last) => ({ ...last, groups: { ...last.groups, fault } }))),
  });
  const visible = useVisible();
  useEffect(() => {
    if (!visible) return undefined;
    const { boxes, groups } = heard.current;
    let timer = 0;
    let again = 0;
    let source: EventSource;
    const show = (): void => {
      clearTimeout(timer);
      timer = 0;
      const [all, grouped] = [boxes.take(), groups.take()];
      setLive((last) => ({
        ...last,
        ...(all ? { all, synced: true } : {}),
        groups: grouped ? { ...last.groups, all: grouped, synced: true } : last.groups,
        connected: true,
      }));
    };
    const soon = (): void => {
      if (!timer) timer = window.setTimeout(show, GATHER_MS);
    };
    // What stands in its way a stream says at its beginning: what an earlier one has said may be over.
    const opened = (): void => setLive((last) => ({ ...last, fault: "", groups: { ...last.groups, fault: "" }, connected: true }));
    const open = (): void => {
      boxes.begin();
      groups.begin();
      source = new EventSource(`/api/v2${below("changes")}`);
      listen(source, heard.current, { soon, show, opened });
      source.addEventListener("error", () => {
        setLive((last) => (last.connected ? { ...last, connected: false } : last));
        if (source.readyState === EventSource.CLOSED) {
          again = window.setTimeout(open, AGAIN_MS);
          // An answer that is none of a stream says why: perhaps nobody is signed in any more.
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

export interface Told {
  report: Report | null;
  fault: string;
  missing: boolean;
}

const WAIT_S = 25;

/** The report of what has that address, by a request that waits for the next. It goes on telling of one that has ended.
 * Who has the name now, as the stream of changes says it: what was missing or over is asked for at once when that changes.
 */
export function useReport(at: string, now: string): Told {
  const [told, setTold] = useState<Told>({ report: null, fault: "", missing: false });
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
          // What has ended is not waited for: its answer comes at once. Nor is the first of whatever has its name next.
          const over = report.phase === "cleaned" || report.phase === "abandoned";
          version = over ? 0 : report.version || 1;
          setTold({ report, fault: "", missing: false });
          if (over || same) await pause(over ? WAIT_S * 1000 : 1000, over ? either : stop.signal);
        } catch (fault) {
          if (stop.signal.aborted) return;
          const missing = fault instanceof Refused && fault.status === 404;
          setTold((last) => ({ ...last, fault: words(fault), missing }));
          await pause(missing ? WAIT_S * 1000 : AGAIN_MS, missing ? either : stop.signal);
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
    // A view that stays open for days pauses often, and its signal would keep whatever listens to it.
    const over = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, ms);
    signal.addEventListener("abort", over);
  });
}

/** What an address answers; asked again when `when` changes, and every so often if that is said. */
export function useAsked<T>(path: string | null, when: unknown = 0, everyMs = 0): { found: T | null; fault: string } {
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
