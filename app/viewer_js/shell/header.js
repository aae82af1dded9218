// The bar on top: where one is, where one can go, what is being used, who is signed in.

import { api, leaveToLogin, loadSession } from "./api.js";
import { el, fill, icon } from "./dom.js";
import { openPasswordDialog } from "./password.js";
import { onRoute } from "./router.js";
import { onUploading } from "./sending.js";
import { studyTitle } from "./words.js";

const TITLES = { worklist: "Worklist", upload: "Upload", case: "Case", admin: "Administration" };
const crumb = el("span", { class: "sp-crumb" });
let route = { view: "worklist" };

/** Name the open study beside the way back; only on the page, never in the address or the title. */
export function showStudyInHeader(study) {
  if (route.view === "case") fill(crumb, el("a", { href: "#/" }, "Worklist"), el("i", {}, "/"), el("b", {}, studyTitle(study)));
}

export async function mountHeader(root) {
  fill(root, el("a", { class: "sp-brand", href: "#/" }, mark(), "Serpens"), crumb);
  const session = await loadSession();
  const mayAdmin = ["manage_accounts", "manage_projects", "see_system"].some((one) => session.permissions.includes(one));
  const nav = el(
    "nav",
    { class: "sp-nav", "aria-label": "Pages" },
    el("a", { href: "#/", data: { to: "worklist" } }, "Worklist"),
    session.permissions.includes("upload_studies") && el("a", { href: "#/upload", data: { to: "upload" } }, "Upload"),
    mayAdmin && el("a", { href: "#/admin", data: { to: "admin" } }, "Admin"),
  );
  const sending = el("a", { class: "sp-chip sp-chip-live", href: "#/upload", hidden: true });
  fill(
    root,
    el("a", { class: "sp-brand", href: "#/" }, mark(), "Serpens"),
    nav,
    crumb,
    el("span", { class: "sp-grow" }),
    sending,
    session.demo && el("span", { class: "sp-chip sp-chip-demo" }, "demo mode: sample users"),
    el("span", { class: "sp-chip sp-chip-notice" }, session.research_notice),
    userMenu(session.user),
  );
  onUploading((text) => {
    sending.hidden = text === null;
    sending.textContent = text ?? "";
  });
  onRoute((next) => {
    route = next;
    document.title = `Serpens · ${TITLES[next.view] ?? "Worklist"}`;
    fill(crumb, next.view === "case" ? el("a", { href: "#/" }, "Worklist") : null);
    for (const link of nav.children) link.toggleAttribute("aria-current", link.dataset.to === next.view);
  });
}

function mark() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M15.5 5.2C13.6 2.4 6 2.6 6 6.4c0 4 8.4 2.8 8.4 7.2 0 4.4-8 4.6-10 1.2");
  svg.append(path);
  return svg;
}

function userMenu(user) {
  const menu = el(
    "div",
    { class: "sp-menu", hidden: true, role: "menu" },
    el("div", { class: "sp-menu-who" }, el("b", {}, user.display_name || user.name), el("small", {}, `${user.name} · ${user.role}`)),
    el("button", { type: "button", role: "menuitem", on: { click: () => (toggle(false), openPasswordDialog()) } }, "Change password"),
    el("button", { type: "button", role: "menuitem", on: { click: signOut } }, "Sign out"),
  );
  const opener = el(
    "button",
    { type: "button", class: "sp-chip sp-user", "aria-haspopup": "menu", "aria-expanded": "false", on: { click: () => toggle(menu.hidden) } },
    user.display_name || user.name,
    icon("down"),
  );
  function toggle(open) {
    menu.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
  }
  const holder = el("div", { class: "sp-user-holder" }, opener, menu);
  document.addEventListener("pointerdown", (event) => {
    if (!holder.contains(event.target)) toggle(false);
  });
  holder.addEventListener("keydown", (event) => {
    if (event.key === "Escape") (toggle(false), opener.focus());
  });
  return holder;
}

async function signOut() {
  await api("/api/session", { method: "DELETE" });
  history.replaceState(null, "", "#/");
  leaveToLogin();
}
