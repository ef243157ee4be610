/** The address bar as state: the view is in the path below /page/, filters and open units are in the query. */
import { useEffect, useState } from "preact/hooks";

const BASE = "/page";

export interface Place {
  parts: string[];
  query: URLSearchParams;
}

function here(): Place {
  const path = location.pathname.slice(BASE.length);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part; // an incomplete escape, such as %4
    }
  });
  return { parts, query: new URLSearchParams(location.search) };
}

/** The address of a view. */
export function href(parts: string[], query: Record<string, string> = {}): string {
  const found = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
  const tail = found.size ? `?${found.toString()}` : "";
  return `${BASE}/${parts.map(encodeURIComponent).join("/")}${tail}`;
}

export function go(address: string, how: "push" | "replace" = "push"): void {
  if (how === "push") history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  window.dispatchEvent(new Event("went"));
}

/** The name on this page of an object in the same namespace as `other`, from its bare name; one of another namespace is `NAMESPACE/NAME`. */
export function qualify(name: string, other: string): string {
  const [namespace = "", foreign] = name.split("/");
  return foreign === undefined ? other.slice(0, other.indexOf(":") + 1) + name : `${namespace}:${foreign}`;
}

/** The address of this view with a changed query. An empty value removes its parameter. */
export function withQuery(changes: Record<string, string>): string {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  return location.pathname + (query.size ? `?${query.toString()}` : "");
}

export function usePlace(): Place {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const look = (): void => setPlace(here());
    const follow = (event: MouseEvent): void => {
      const link = event.target instanceof Element ? event.target.closest("a") : null;
      const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
      if (!link || !plain || link.target || link.origin !== location.origin || event.defaultPrevented) return;
      if (!link.pathname.startsWith(`${BASE}/`) || link.hash) return;
      event.preventDefault();
      const stays = link.pathname === location.pathname;
      go(link.pathname + link.search, stays ? "replace" : "push");
      if (!stays) window.scrollTo(0, 0);
    };
    window.addEventListener("popstate", look);
    window.addEventListener("went", look);
    document.addEventListener("click", follow);
    return () => {
      window.removeEventListener("popstate", look);
      window.removeEventListener("went", look);
      document.removeEventListener("click", follow);
    };
  }, []);
  return place;
}
