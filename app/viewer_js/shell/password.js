// Changing one's own password.

import { api, leaveToLogin } from "./api.js";
import { button, el } from "./dom.js";

export function openPasswordDialog() {
  const old = field("old-password", "Current password", "current-password");
  const fresh = field("new-password", "New password", "new-password");
  const again = field("new-password-again", "New password again", "new-password");
  const problem = el("p", { class: "sp-problem", role: "alert", hidden: true });
  const save = el("button", { type: "submit", class: "sp-button sp-primary" }, "Change password");
  const form = el(
    "form",
    { class: "sp-form", method: "dialog" },
    el("h2", {}, "Change password"),
    old.row,
    fresh.row,
    again.row,
    problem,
    el("div", { class: "sp-actions" }, button("Cancel", () => dialog.close()), save),
  );
  const dialog = el("dialog", { class: "sp-dialog sp-root", on: { close: () => dialog.remove() } }, form);

  function say(message) {
    problem.textContent = message;
    problem.hidden = false;
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (fresh.input.value !== again.input.value) {
      say("The two new passwords differ.");
      return;
    }
    save.disabled = true;
    try {
      await api("/api/session/password", { method: "POST", json: { old_password: old.input.value, new_password: fresh.input.value } });
    } catch (error) {
      say(error.message);
      save.disabled = false;
      return;
    }
    // Every session of the account has ended with the old password, this one too.
    form.replaceChildren(
      el("h2", {}, "Password changed"),
      el("p", {}, "Sign in with the new one."),
      el("div", { class: "sp-actions" }, button("Sign in", leaveToLogin, { kind: "sp-primary" })),
    );
    dialog.addEventListener("close", leaveToLogin);
  });
  document.body.append(dialog);
  dialog.showModal();
  old.input.focus();
}

function field(id, label, autocomplete) {
  const input = el("input", { id: `sp-${id}`, type: "password", required: true, autocomplete });
  return { input, row: el("div", { class: "sp-field" }, el("label", { for: input.id }, label), input) };
}
