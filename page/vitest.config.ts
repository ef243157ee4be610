import { defineConfig } from "vitest/config";

// Not in vite.config.ts: what says how the page is built is read by its build alone.
export default defineConfig({
  // A bound for what hangs. On a machine with other work the longest takes longer than the usual five seconds.
  test: { testTimeout: 100_000 },
});
