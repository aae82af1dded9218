/** Collects the licences of what goes into the bundle, so that they travel with it. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** The folder of the package that a bundled module belongs to, null for our own. */
function packageFolder(module) {
  const file = module.replace(/^\0/, "").split("?")[0];
  if (!file.includes("node_modules")) return null;
  for (let folder = dirname(file); folder.includes("node_modules"); folder = dirname(folder)) {
    const manifest = join(folder, "package.json");
    if (existsSync(manifest) && JSON.parse(readFileSync(manifest, "utf8")).version) return folder;
  }
  return null;
}

function notice(folder) {
  const { name, version, license, author, repository } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const files = readdirSync(folder).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
  const texts = files.map((file) => readFileSync(join(folder, file), "utf8").trim());
  const stated = [
    `${name} ${version}`,
    `Licence: ${typeof license === "string" ? license : (license?.type ?? "see its source")}`,
    `Author: ${typeof author === "string" ? author : (author?.name ?? "see its source")}`,
    `Source: ${typeof repository === "string" ? repository : (repository?.url ?? "")}`,
  ];
  return [...stated, "", ...(texts.length ? texts : ["(The package brings no licence text of its own.)"])].join("\n");
}

/** A Vite plugin that writes THIRD_PARTY.txt beside the bundle. */
export function thirdPartyNotices() {
  return {
    name: "third-party-notices",
    generateBundle() {
      const folders = new Set([...this.getModuleIds()].map(packageFolder).filter(Boolean));
      const notices = [...folders].map(notice).sort();
      const source = `What the viewer of Serpens contains of others.\n\n${notices.join(`\n\n${"-".repeat(80)}\n\n`)}\n`;
      this.emitFile({ type: "asset", fileName: "THIRD_PARTY.txt", source });
    },
  };
}
