// Which view is shown, by the hash: going to a case is no page load, and Back and Forward work. The address holds our
// own random ids only.

const listeners = [];

export function parse(hash) {
  const [view = "", id = ""] = hash.replace(/^#\/?/, "").split("/");
  if (view === "") return { view: "worklist" };
  if (view === "case" && /^[0-9a-zA-Z_-]+$/.test(id)) return { view, id };
  if ((view === "upload" || view === "admin") && id === "") return { view };
  return { view: "unknown" };
}

export function current() {
  return parse(location.hash);
}

export function go(hash) {
  location.hash = hash;
}

/** Call now and after each change. */
export function onRoute(listener) {
  listeners.push(listener);
  listener(current());
}

function apply() {
  const route = current();
  if (route.view === "unknown") {
    location.replace("#/");
    return;
  }
  document.body.dataset.view = route.view;
  for (const listener of listeners) listener(route);
}

export function start() {
  addEventListener("hashchange", apply);
  apply();
}
