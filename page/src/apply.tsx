/** Create, edit and re-create a sandbox. Preconditions ensure that each changes only what the user has seen. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, get, orgPath, request, tagged, words } from "./api";
import { parseSandbox, type SandboxFile } from "./sandbox-file";
import { go, href } from "./router";
import type { Sandbox } from "./types";
import { Dialog, Fault, Prose } from "./ui";

const POLL_INTERVAL_MS = 1000;
const EXAMPLE = "name: demo\nspec:\n  cluster: local\n  labels: {owner: me}\n  ttl: {duration: 1d}\n";

async function put({ name, spec }: SandboxFile, condition: Record<string, string>): Promise<string[]> {
  const made = await request<Sandbox>("PUT", orgPath("sandboxes", name), { name, spec }, undefined, condition);
  return made.warnings ?? [];
}

interface Editor {
  text: string;
  /** The ETag of the edited sandbox; empty for a new one. */
  tag: string;
}

/** The sandbox as a file, and its ETag. */
async function load(name: string): Promise<Editor> {
  const [{ found, tag }, { stringify }] = await Promise.all([tagged<Sandbox>(orgPath("sandboxes", name)), import("yaml")]);
  return { text: stringify({ name: found.name, spec: found.spec }, { lineWidth: 0, version: "1.1" }), tag };
}

/** Edit the file of a sandbox, or of a new one if `name` is empty, and apply it. */
export function ApplyDialog({ name, onClose }: { name: string; onClose: () => void }): JSX.Element {
  const [editor, setEditor] = useState<Editor | null>(name ? null : { text: EXAMPLE, tag: "" });
  const [fault, setFault] = useState("");
  const [warnings, setWarnings] = useState<{ name: string; texts: string[] } | null>(null);
  const [busy, setBusy] = useState(false);
  const open = useRef(true);
  useEffect(() => {
    if (name) void load(name).then(setEditor, (refused: unknown) => setFault(words(refused)));
    return () => void (open.current = false);
  }, [name]);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!editor) return;
    setBusy(true);
    setFault("");
    try {
      const file = await parseSandbox(editor.text);
      if (name && file.name !== name) throw new Error(`name: must be ${name}; to create another sandbox, use Create in the list`);
      const texts = await put(file, editor.tag ? { "If-Match": editor.tag } : { "If-None-Match": "*" });
      if (!open.current) return;
      if (texts.length) setWarnings({ name: file.name, texts });
      else finish(file.name);
    } catch (refused) {
      setFault(words(refused));
      setBusy(false);
    }
  };
  const finish = (made: string): void => {
    onClose();
    if (!name) go(href(["sandboxes", made]));
  };
  if (warnings)
    return (
      <Dialog title={`${warnings.name} is applied, with warnings`} onClose={() => finish(warnings.name)}>
        <ul>
          {warnings.texts.map((each) => (
            <li key={each}>
              <Prose>{each}</Prose>
            </li>
          ))}
        </ul>
        <p class="buttons">
          <button type="button" class="main" onClick={() => finish(warnings.name)}>
            Close
          </button>
        </p>
      </Dialog>
    );
  return (
    <Dialog title={name ? `Edit ${name}` : "Create a sandbox"} wide onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {name && <p>Labels, description, time to live, endpoints, forks and local mappings can change.</p>}
        <label>
          File (YAML)
          <textarea
            rows={16}
            spellcheck={false}
            autocomplete="off"
            value={editor?.text ?? ""}
            disabled={!editor}
            onInput={(event) => setEditor({ tag: editor?.tag ?? "", text: event.currentTarget.value })}
          />
        </label>
        <Fault>{fault}</Fault>
        <p class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" disabled={busy || !editor}>
            Apply
          </button>
        </p>
      </form>
    </Dialog>
  );
}

/** Delete a sandbox, wait for its end, and create it again from the same spec. */
export function RecreateDialog({ name, onClose }: { name: string; onClose: () => void }): JSX.Element {
  const [said, setSaid] = useState("");
  const [fault, setFault] = useState("");
  const open = useRef(true);
  useEffect(() => () => void (open.current = false), []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setFault("");
    try {
      const { found, tag } = await tagged<Sandbox>(orgPath("sandboxes", name));
      setSaid("Deleting. It is created again after its delete steps have succeeded, if this dialog stays open.");
      await request("DELETE", orgPath("sandboxes", name), undefined, undefined, { "If-Match": tag });
      while (open.current && (await exists(name))) await new Promise((done) => setTimeout(done, POLL_INTERVAL_MS));
      if (!open.current) return;
      await put({ name, spec: found.spec }, { "If-None-Match": "*" });
      if (open.current) onClose();
    } catch (refused) {
      setFault(words(refused));
      setSaid("");
    }
  };
  return (
    <Dialog title={`Re-create ${name}?`} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <p>Its forks stop and its delete steps run. Then a sandbox with the same name and spec is created. All data in its resources is lost.</p>
        <p role="status">{said}</p>
        <Fault>{fault}</Fault>
        <p class="buttons">
          <button type="button" onClick={onClose}>
            {said ? "Only delete" : "Cancel"}
          </button>
          <button type="submit" class="danger" disabled={said !== ""}>
            Re-create
          </button>
        </p>
      </form>
    </Dialog>
  );
}

async function exists(name: string): Promise<boolean> {
  try {
    await get(orgPath("sandboxes", name));
    return true;
  } catch (refused) {
    if (refused instanceof Refused && refused.status === 404) return false;
    if (refused instanceof Refused && refused.status < 500 && refused.status > 0) throw refused;
    return true; // the server does not answer at the moment
  }
}
