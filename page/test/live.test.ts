import { describe, expect, test } from "vitest";
import { KindStream, listen } from "../src/live";
import type { Group, Pool, Sandbox } from "../src/types";

/** An EventSource for tests: the test decides which events arrive and when the stream reopens. */
class Stream extends EventTarget {
  say(kind: string, data: object = {}): void {
    this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data) }));
  }
}

function heard(): { stream: Stream; there: () => string[] } {
  const nothing = (): void => undefined;
  const boxes = new KindStream<Sandbox>("", nothing);
  const groups = new KindStream<Group>("group-", nothing);
  const pools = new KindStream<Pool>("pool-", nothing);
  const stream = new Stream();
  listen(stream as unknown as EventSource, [boxes, groups, pools], { soon: nothing, show: nothing, opened: nothing });
  return { stream, there: () => [...(boxes.take() ?? []), ...(groups.take() ?? []), ...(pools.take() ?? [])].map(([name]) => name) };
}

describe("a stream that breaks off and is opened again", () => {
  test("before all had come: what is not said again is gone", () => {
    const { stream, there } = heard();
    stream.say("open");
    stream.say("changed", { name: "ghost" });
    stream.say("group-changed", { name: "ghosts" });
    stream.say("pool-changed", { name: "ghost pool" });
    stream.say("group-synced");
    stream.say("open");
    stream.say("changed", { name: "box" });
    stream.say("group-changed", { name: "group" });
    stream.say("pool-changed", { name: "pool" });
    stream.say("group-synced");
    stream.say("synced");
    expect(there()).toEqual(["box", "group", "pool"]);
  });

  test("after that: it goes on with what there was", () => {
    const { stream, there } = heard();
    stream.say("open");
    stream.say("changed", { name: "box" });
    stream.say("group-synced");
    stream.say("synced");
    stream.say("open");
    stream.say("changed", { name: "another" });
    expect(there()).toEqual(["box", "another"]);
  });
});
