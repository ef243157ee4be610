import { defineConfig } from "vite";

// `npm run build` writes where Dayfly serves from; scripts/page.sh calls it.
export default defineConfig({
  base: "/page/",
  build: {
    outDir: "../src/dayfly/page/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // A data: address would be a script or style that no digest names.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
});
