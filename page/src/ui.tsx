/** Small components that all views share. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { words } from "./api";
import { prose, visible } from "./text";

/** A symbol for each state, because not everyone can distinguish the colours. */
const SIGNS: Record<string, string> = {
  waiting: "○",
  running: "◐",
  succeeded: "✓",
  failed: "✕",
  stuck: "✕",
  retrying: "↻",
  unknown: "?",
  stopped: "■",
  skipped: "–",
  ready: "✓",
  working: "◐",
  trouble: "!",
  warning: "!",
};

export function State({ state, children }: { state: string; children?: ComponentChildren }): JSX.Element {
  return (
    <span class={`state ${state}`}>
      <span aria-hidden="true" class="sign">
        {SIGNS[state] ?? "·"}
      </span>
      {children ?? state}
    </span>
  );
}

/** Untrusted text. `bdi` prevents it from changing the direction of the surrounding text. */
export function Text({ children }: { children: string }): JSX.Element {
  return <bdi>{visible(children)}</bdi>;
}

/** A message of the server. Text between backticks is rendered as code; other markup has no effect. */
export function Prose({ children }: { children: string }): JSX.Element {
  return (
    <bdi>
      {prose(children).map(([text, isCode], n) => (isCode ? <code key={n}>{visible(text)}</code> : visible(text)))}
    </bdi>
  );
}

export function Fault({ children }: { children: string }): JSX.Element | null {
  return children ? (
    <p class="fault" role="alert">
      <Prose>{children}</Prose>
    </p>
  ) : null;
}

export function Copy({ text, children }: { text: () => string | Promise<string>; children: string }): JSX.Element {
  const [said, setSaid] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await put(await text());
      setSaid("Copied");
    } catch (fault) {
      setSaid(`Not copied: ${words(fault)}`);
    }
    setTimeout(() => setSaid(""), 1500);
  };
  return (
    <button type="button" class="quiet" onClick={() => void copy()}>
      <span class={said ? "unseen" : ""}>{children}</span>
      <span class="over" role="status">
        {said}
      </span>
    </button>
  );
}

async function put(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without TLS, browsers have no clipboard API; this fallback still works.
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offstage";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("this browser does not allow it");
}

interface DialogProps {
  title: string;
  wide?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog. Escape cancels it. */
export function Dialog({ title, wide = false, onClose, children }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const asked = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (asked instanceof HTMLElement || asked instanceof SVGElement) asked.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class={wide ? "wide" : undefined} aria-labelledby={id} onClose={onClose}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface AskProps {
  title: string;
  /** The label of the button that confirms. */
  verb: string;
  danger?: boolean;
  ready?: boolean;
  onClose: () => void;
  act: () => Promise<unknown>;
  children?: ComponentChildren;
}

/** A confirmation that sends a request. If the request is refused, the dialog stays open and shows the error. */
export function Ask({ title, verb, danger, ready = true, onClose, act, children }: AskProps): JSX.Element {
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  // The user may have closed this dialog and opened another one before the response arrives.
  const open = useRef(true);
  useEffect(() => () => void (open.current = false), []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFault("");
    try {
      await act();
      if (open.current) onClose();
    } catch (refused) {
      setFault(words(refused));
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {children}
        <Fault>{fault}</Fault>
        <p class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={danger ? "danger" : "main"} disabled={busy || !ready}>
            {verb}
          </button>
        </p>
      </form>
    </Dialog>
  );
}

/** A view's heading. It receives the focus when the view opens, so that screen readers announce it. */
export function Heading({ children, title }: { children: ComponentChildren; title: string }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Dayfly`;
    if (document.activeElement === document.body) heading.current?.focus({ preventScroll: true });
  }, [title]);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {children}
    </h1>
  );
}

export function Labels({ labels }: { labels: Record<string, string> }): JSX.Element {
  return (
    <>
      {Object.entries(labels).map(([key, value]) => (
        <span class="label" key={key}>
          <Text>{`${key}=${value}`}</Text>
        </span>
      ))}
    </>
  );
}
