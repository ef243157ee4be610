import { defineConfig } from "vitest/config";

// A separate file, because only the build should read vite.config.ts.
export default defineConfig({
  // An upper bound for tests that hang. On a loaded machine the longest test exceeds the default of five seconds.
  test: { testTimeout: 100_000 },
});
