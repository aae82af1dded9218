import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

import { thirdPartyNotices } from "./third_party.js";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const require = createRequire(import.meta.url);

export default defineConfig({
  base: "./",
  publicDir: false,
  define: { "process.env.NODE_ENV": '"production"' },
  // vtk.js asks for two modules of Node. Vite would leave them out and the bundle would fail when it runs.
  resolve: { alias: { events: require.resolve("events/events.js"), url: require.resolve("url/url.js") } },
  worker: { format: "es" },
  plugins: [thirdPartyNotices()],
  build: {
    outDir: here("../static/viewer"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    chunkSizeWarningLimit: 8000,
    rolldownOptions: {
      input: { viewer: here("viewer/index.js"), shell: here("shell/index.js") },
      preserveEntrySignatures: "strict",
      checks: { pluginTimings: false },
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "chunks/[name]-[hash].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
});
