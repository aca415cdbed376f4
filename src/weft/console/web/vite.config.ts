import { readFileSync, existsSync } from "node:fs";
import { join } from "node:path";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** Writes the licences of the packages that end up in the pages beside them. */
function licences(): Plugin {
  return {
    name: "licences",
    generateBundle() {
      const manifest = JSON.parse(readFileSync(join(import.meta.dirname, "package.json"), "utf8"));
      const seen = new Set<string>();
      const visit = (name: string): void => {
        const folder = join(import.meta.dirname, "node_modules", name);
        if (seen.has(name) || !existsSync(folder)) return;
        seen.add(name);
        const inner = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        Object.keys(inner.dependencies ?? {}).forEach(visit);
      };
      Object.keys(manifest.dependencies).forEach(visit);
      const texts = [...seen].sort().map((name) => {
        const folder = join(import.meta.dirname, "node_modules", name);
        const inner = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const file = ["LICENSE", "LICENSE.md", "license", "LICENSE.txt"].find((it) => existsSync(join(folder, it)));
        const text = file ? readFileSync(join(folder, file), "utf8").trim() : `Licence: ${inner.license}`;
        return `${name} ${inner.version}\n\n${text}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licences.txt", source: texts.join(`\n${"-".repeat(72)}\n\n`) });
    },
  };
}

export default defineConfig({
  plugins: [react(), licences()],
  build: {
    outDir: "../pages",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // a strict content security policy allows no data: scripts or fonts
    modulePreload: { polyfill: false },
  },
  css: { modules: { localsConvention: "camelCaseOnly" } },
  server: { proxy: { "/api": process.env["WEFT_URL"] ?? "http://127.0.0.1:8765" } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], css: { modules: { classNameStrategy: "non-scoped" } } },
} as import("vite").UserConfig);
