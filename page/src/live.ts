/** What lives on the server, kept up to date while somebody looks: the list of sandboxes, and one sandbox's report. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, below, get, words } from "./api";
import type { Report, Sandbox } from "./types";

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

export interface Live {
  all: Map<string, Sandbox>;
  /** Whether everything has come at least once. */
  synced: boolean;
  connected: boolean;
  /** Why what is shown may be out of date, or nothing can be shown, in the server's own words. */
  fault: string;
}

/** All sandboxes of the organisation by server-sent events. */
export function useSandboxes(): Live {
  const [live, setLive] = useState<Live>({ all: new Map(), synced: false, connected: true, fault: "" });
  const all = useRef(new Map<string, Sandbox>());
  const visible = useVisible();
  useEffect(() => {
    if (!visible) return undefined;
    let timer = 0;
    let again = 0;
    let source: EventSource;
    let synced = false;
    let fresh: Map<string, Sandbox> | null = new Map();
    const show = (): void => {
      timer = 0;
      setLive((last) => ({ ...last, all: new Map(all.current), synced: last.synced || synced, connected: true }));
    };
    const soon = (): void => {
      if (synced && !timer) timer = window.setTimeout(show, GATHER_MS);
    };
    const open = (): void => {
      source = new EventSource(`/api/v2${below("changes")}`);
      source.addEventListener("open", () => setLive((last) => (last.connected ? last : { ...last, connected: true })));
      // Whatever is not said again by `synced` is gone.
      source.addEventListener("reset", () => (fresh = new Map()));
      source.addEventListener("changed", (event: MessageEvent<string>) => {
        const sandbox = JSON.parse(event.data) as Sandbox;
        (fresh ?? all.current).set(sandbox.name, sandbox);
        if (!fresh) soon();
      });
      source.addEventListener("deleted", (event: MessageEvent<string>) => {
        (fresh ?? all.current).delete((JSON.parse(event.data) as { name: string }).name);
        soon();
      });
      source.addEventListener("synced", () => {
        if (fresh) all.current = fresh;
        fresh = null;
        synced = true;
        clearTimeout(timer);
        show();
      });
      source.addEventListener("trouble", (event: MessageEvent<string>) => {
        const { error } = JSON.parse(event.data) as { error: string };
        setLive((last) => ({ ...last, fault: error }));
      });
      source.addEventListener("error", () => {
        setLive((last) => (last.connected ? { ...last, connected: false } : last));
        if (source.readyState === EventSource.CLOSED) {
          fresh = new Map();
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

/** One sandbox's report, by a request that waits for the next. It goes on telling of one that has ended. */
export function useReport(name: string): Told {
  const [told, setTold] = useState<Told>({ report: null, fault: "", missing: false });
  const visible = useVisible();
  useEffect(() => {
    if (!visible) return undefined;
    const stop = new AbortController();
    const follow = async (): Promise<void> => {
      let version = 0;
      while (!stop.signal.aborted) {
        try {
          const query = version ? `?after=${version}&wait=${WAIT_S}` : "";
          const report = await get<Report>(`${below("sandboxes", name, "report")}${query}`, stop.signal);
          if (stop.signal.aborted) return;
          const same = report.version === version;
          version = report.version || 1;
          setTold({ report, fault: "", missing: false });
          // What has ended is not waited for: its answer comes at once.
          const over = report.phase === "cleaned" || report.phase === "abandoned";
          if (over || same) await pause(over ? WAIT_S * 1000 : 1000, stop.signal);
        } catch (fault) {
          if (stop.signal.aborted) return;
          const missing = fault instanceof Refused && fault.status === 404;
          setTold((last) => ({ ...last, fault: words(fault), missing }));
          await pause(missing ? WAIT_S * 1000 : AGAIN_MS, stop.signal);
        }
      }
    };
    void follow();
    return () => stop.abort();
  }, [name, visible]);
  return told;
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
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
