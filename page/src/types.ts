/** The API types, generated from its OpenAPI document. */
import type { components } from "./openapi";

type Schemas = components["schemas"];

export type Sandbox = Schemas["Sandbox"];
export type Group = Schemas["RouteGroup"];
export type SandboxOrGroup = Sandbox | Group;
export type Pool = Schemas["Pool"];
export type ResourceStatus = Schemas["ResourceStatus"];
export type PoolMember = Schemas["PoolMember"];
export type PoolExplanation = Schemas["PoolExplanation"];
/** An object with a row in a list. A pool has no time to live. */
export type Listed = Pick<Pool, "name" | "createdAt" | "spec" | "progress" | "namespace"> & {
  status: Pick<Pool["status"], "ready" | "reason" | "message"> & { scheduledDeleteTime?: string | null };
};
export type LeakCheck = Schemas["LeakCheck"];
export type LeakFinding = Schemas["LeakFinding"];
export type Report = Schemas["Report"];
export type Unit = Schemas["Unit"];
export type Plan = Schemas["CompilePreview"];
export type Step = Schemas["StepLine"];
export type Blocker = Schemas["Blocker"];
export type Move = Schemas["Move"];
export type Output = Schemas["Output"];
export type LogPiece = Schemas["LogChunk"];
export type AttemptLog = Schemas["Attempt"];
export type Concern = Schemas["Concern"];
export type Ended = Schemas["EndedRun"];
export type Plugin = Schemas["Plugin"];
export type Cluster = Schemas["Cluster"];
export type Session = Schemas["PageSession"];

/** The displayed fields of the spec of a sandbox or route group. Others are kept unchanged. */
export interface Spec {
  cluster?: string;
  description?: string;
  labels?: Record<string, string>;
  ttl?: { duration: string; offsetFrom?: string };
  match?: unknown;
  [key: string]: unknown;
}

/** The sandbox or route group of a page. */
export interface Subject {
  plural: "sandboxes" | "routegroups";
  /** The kind, as used in a sentence. */
  kind: "sandbox" | "route group";
  name: string;
  /** The UID of an ended sandbox or group, because several may have had the name. Empty: the current one, or the last that ended. */
  uid: string;
}
