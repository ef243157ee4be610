/** A unit's log, followed live, with search, copy and download. Only its last part is shown, and the position stays if the
 * user has scrolled up.
 */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Refused, get, part, words } from "./api";
import { pause, useVisible } from "./live";
import { findAll, lastPart, logPiece } from "./text";
import type { LogPiece } from "./types";
import { Copy, Fault } from "./ui";

const MOST_CHARS = 400_000;
const MOST_HITS = 1000;
/** A download of more ends with an error instead of filling the memory of the browser. */
const MAX_DOWNLOAD_BYTES = 256 << 20;

interface Props {
  at: string;
  unit: string;
  attempt: number;
}

export function Log({ at, unit, attempt }: Props): JSX.Element {
  const [text, setText] = useState("");
  const [cut, setCut] = useState(false);
  const [said, setSaid] = useState("Loading…");
  const [fault, setFault] = useState("");
  const visible = useVisible();
  const frame = useRef<HTMLPreElement>(null);
  const stays = useRef(false);
  const offset = useRef(0);
  const held = useRef("");
  useEffect(() => {
    offset.current = 0;
    held.current = "";
    stays.current = false;
    setText("");
    setCut(false);
    setSaid("Loading…");
    setFault("");
  }, [at, unit, attempt]);
  useEffect(() => {
    if (!visible) return undefined;
    const stop = new AbortController();
    const follow = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        const query = { unit, attempt: String(attempt), offset: String(offset.current), wait: "20" };
        try {
          const piece = await get<LogPiece>(part(at, "log", query), stop.signal);
          if (stop.signal.aborted) return;
          offset.current = piece.next;
          const more = piece.encoding === "utf-8" ? piece.data : bytes(piece.data);
          const [come, rest] = logPiece(held.current + more, piece.sealed);
          held.current = rest;
          setFault("");
          setText((last) => {
            const all = last + come;
            if (all.length > MOST_CHARS) setCut(true);
            return lastPart(all, MOST_CHARS);
          });
          setSaid(piece.sealed ? "Complete" : "Following");
          if (piece.sealed) return;
        } catch (refused) {
          if (stop.signal.aborted) return;
          const none = refused instanceof Refused && refused.status === 400;
          setSaid(none ? "No log yet" : "");
          if (!none) setFault(words(refused));
          await pause(none ? 1000 : 3000, stop.signal);
        }
      }
    };
    void follow();
    return () => stop.abort();
  }, [at, unit, attempt, visible]);
  const [sought, setSought] = useState("");
  const [current, setCurrent] = useState(0);
  const hits = useMemo(() => findAll(text, sought, MOST_HITS), [text, sought]);
  const chosen = hits.length ? current % hits.length : 0;
  useLayoutEffect(() => {
    const pre = frame.current;
    if (!pre) return;
    const mark = pre.querySelector<HTMLElement>("mark.current");
    // Not scrollIntoView, which would also scroll the page.
    if (mark) pre.scrollTop += mark.getBoundingClientRect().top - pre.getBoundingClientRect().top - pre.clientHeight / 2;
    else if (!stays.current) pre.scrollTop = pre.scrollHeight;
  }, [text, sought, chosen]);
  const seek = (step: number): void => setCurrent((chosen + step + hits.length) % Math.max(1, hits.length));
  const scrolled = (): void => {
    const pre = frame.current;
    if (pre) stays.current = pre.scrollTop + pre.clientHeight < pre.scrollHeight - 40;
  };
  return (
    <div class="log">
      <p class="aside" role="status">
        {said}
        {cut ? "; only the last part is shown. Download has all of it." : ""}
      </p>
      <form
        role="search"
        class="log-tools"
        onSubmit={(event) => {
          event.preventDefault();
          seek(1);
        }}
      >
        <input
          type="search"
          aria-label={`Search in the log of ${unit}`}
          placeholder="search"
          value={sought}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => {
            setSought(event.currentTarget.value);
            setCurrent(0);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && event.shiftKey) {
              event.preventDefault();
              seek(-1);
            }
            // Escape clears the search. Elsewhere it closes the unit.
            if (event.key === "Escape" && sought) event.stopPropagation();
          }}
        />
        <span class="aside hits" role="status">
          {sought ? (hits.length ? `${chosen + 1} of ${hits.length}${hits.length === MOST_HITS ? "+" : ""}` : "none") : ""}
        </span>
        <Copy text={() => text}>Copy</Copy>
        <button type="button" class="quiet" onClick={() => void download(at, unit, attempt).catch((refused: unknown) => setFault(words(refused)))}>
          Download
        </button>
      </form>
      <Fault>{fault}</Fault>
      <pre ref={frame} tabIndex={0} role="log" aria-live="off" aria-label={`Log of ${unit}`} onScroll={scrolled}>
        {sought && hits.length ? <Marked text={text} hits={hits} length={sought.length} chosen={chosen} /> : text}
      </pre>
    </div>
  );
}

interface MarkedProps {
  text: string;
  hits: number[];
  length: number;
  chosen: number;
}

/** The text with its hits marked. */
function Marked({ text, hits, length, chosen }: MarkedProps): JSX.Element {
  return (
    <>
      {text.slice(0, hits[0])}
      {hits.map((hit, n) => (
        <>
          <mark class={n === chosen ? "current" : undefined}>{text.slice(hit, hit + length)}</mark>
          {text.slice(hit + length, hits[n + 1])}
        </>
      ))}
    </>
  );
}

function raw(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

function bytes(base64: string): string {
  return new TextDecoder().decode(raw(base64));
}

/** Save the bytes of a log so far as a file. */
async function download(at: string, unit: string, attempt: number): Promise<void> {
  const pieces: (string | Uint8Array<ArrayBuffer>)[] = [];
  for (let offset = 0; ; ) {
    const piece = await get<LogPiece>(part(at, "log", { unit, attempt: String(attempt), offset: String(offset) }));
    pieces.push(piece.encoding === "utf-8" ? piece.data : raw(piece.data));
    if (piece.next <= offset) break;
    offset = piece.next;
    if (offset > MAX_DOWNLOAD_BYTES) throw new Error("this log is too large for a browser: use dayfly logs");
  }
  const address = URL.createObjectURL(new Blob(pieces, { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `${[at.split("?")[0]?.split("/").pop() ?? "", unit, attempt].join("-").replace(/[^A-Za-z0-9_.-]+/g, "-")}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
