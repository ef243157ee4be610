/** A unit's log, followed live. Only its last part is kept, and the position stays if the user has scrolled up. */
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refused, get, part, words } from "./api";
import { pause, useVisible } from "./live";
import { lastPart, logPiece } from "./text";
import type { LogPiece } from "./types";
import { Fault } from "./ui";

const MOST_CHARS = 400_000;

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
  useLayoutEffect(() => {
    const pre = frame.current;
    if (pre && !stays.current) pre.scrollTop = pre.scrollHeight;
  }, [text]);
  const scrolled = (): void => {
    const pre = frame.current;
    if (pre) stays.current = pre.scrollTop + pre.clientHeight < pre.scrollHeight - 40;
  };
  return (
    <div class="log">
      <p class="aside" role="status">
        {said}
        {cut ? "; only the last part is shown. All of it: dayfly logs" : ""}
      </p>
      <Fault>{fault}</Fault>
      <pre ref={frame} tabIndex={0} role="log" aria-live="off" aria-label={`Log of ${unit}`} onScroll={scrolled}>
        {text}
      </pre>
    </div>
  );
}

function bytes(base64: string): string {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (char) => char.charCodeAt(0)));
}
