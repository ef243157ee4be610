/** Read the file of one sandbox. Pure, apart from loading the YAML parser. */

export interface SandboxFile {
  name: string;
  spec: object;
}

/** The sandbox in a YAML or JSON text. Errors name the field, or the line of a syntax error. */
export async function parseSandbox(text: string): Promise<SandboxFile> {
  const { parseAllDocuments } = await import("yaml");
  const documents = parseAllDocuments(text, { version: "1.1" });
  if (!Array.isArray(documents) || documents.length !== 1)
    throw new Error(`the text has ${documents.length} documents: apply one sandbox at a time here, or all with \`dayfly apply\``);
  const [document] = documents;
  const error = document?.errors[0];
  if (error) throw new Error(error.message);
  const placeholder = /@\{[^}]*\}/.exec(text);
  if (placeholder) throw new Error(`write a value in place of ${placeholder[0]}: only the command line fills it in`);
  const found: unknown = document?.toJS({ maxAliasCount: 100 });
  if (typeof found !== "object" || found === null || Array.isArray(found)) throw new Error("the text must have the fields name and spec");
  const { kind = "Sandbox", name, spec, ...others } = found as Record<string, unknown>;
  if (kind !== "Sandbox" || "apiVersion" in others) throw new Error("kind: only the file of a sandbox can be applied here; apply other files with `dayfly apply`");
  if (typeof name !== "string" || !name) throw new Error("name: is required");
  if (typeof spec !== "object" || spec === null || Array.isArray(spec)) throw new Error("spec: is required and must be an object");
  return { name, spec };
}
