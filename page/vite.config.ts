import { defineConfig } from "vite";

// `npm run build` writes to the folder that Dayfly serves; scripts/page.sh calls it.
export default defineConfig({
  base: "/page/",
  build: {
    outDir: "../src/dayfly/page/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // A data: address would be a script or style without a digest in the Content-Security-Policy.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
});
