/** The API's own types, as its OpenAPI document has them. */
import type { components } from "./openapi";

type Schemas = components["schemas"];

export type Sandbox = Schemas["Sandbox"];
export type Group = Schemas["RouteGroup"];
/** What lives: both have a name, a wish, a status and a progress. */
export type Living = Sandbox | Group;
export type Report = Schemas["Report"];
export type Unit = Schemas["Unit"];
export type Plan = Schemas["CompilePreview"];
export type Step = Schemas["StepLine"];
export type Blocker = Schemas["Blocker"];
export type Move = Schemas["Move"];
export type Output = Schemas["Output"];
export type LogPiece = Schemas["LogPiece"];
export type AttemptLog = Schemas["Attempt"];
export type Concern = Schemas["Concern"];
export type Ended = Schemas["Ended"];
export type Plugin = Schemas["Plugin"];
export type Cluster = Schemas["Cluster"];
export type Session = Schemas["PageSession"];

/** What the spec of a sandbox or a route group has that is shown; the rest passes through untouched. */
export interface Spec {
  cluster?: string;
  description?: string;
  labels?: Record<string, string>;
  ttl?: { duration: string; offsetFrom?: string };
  match?: unknown;
  [key: string]: unknown;
}

/** What a page is about: a sandbox, or a route group. */
export interface Subject {
  plural: "sandboxes" | "routegroups";
  /** In a sentence. */
  kind: "sandbox" | "route group";
  name: string;
  /** Which one, of several that have had the name: one that has ended. Empty for the one that lives, or ended last. */
  uid: string;
}
