/** The bar of tools over the picture. */

import { make, setText } from "./dom.js";

const TOOLS = [
  { name: "window", label: "W/L", title: "Drag: window width and level (W)" },
  { name: "zoom", label: "Zoom", title: "Drag: zoom (Z)" },
  { name: "pan", label: "Pan", title: "Drag: move (P)" },
  { name: "scroll", label: "Scroll", title: "Drag: slices (S)" },
];

/** Buttons for tools and actions, and the list of presets. */
export class Toolbar {
  #tools = {};
  #on;
  #end = make("i", "sv-sep");
  #menu;
  #presets;
  #invert;
  #cine;
  #onOutside = (event) => {
    if (!this.#presets.contains(event.target)) this.#closeMenu();
  };

  /**
   * @param {HTMLElement} stage
   * @param {{tool: (name: string) => void, invert: () => void, reset: () => void, fit: () => void,
   *     preset: (at: number) => void, cine: () => void, help: () => void}} on
   */
  constructor(stage, on) {
    this.#on = on;
    const bar = make("div", "sv-tools", { label: "Viewer tools" });
    bar.setAttribute("role", "toolbar");
    for (const { name, label, title } of TOOLS) {
      this.#tools[name] = this.#button(label, title, () => on.tool(name));
    }
    this.#invert = this.#button("Invert", "Black for white (I)", on.invert);
    this.#cine = this.#button("Play", "Play or stop (space)", on.cine);
    this.#menu = make("div", "sv-menu");
    this.#menu.setAttribute("role", "menu");
    const open = this.#button("Presets ▾", "Windows (1 to 9)", () => this.#toggleMenu());
    open.setAttribute("aria-haspopup", "menu");
    this.#presets = make("div", "sv-presets", { children: [open, this.#menu] });
    this.onPreset = on.preset;
    bar.append(
      ...Object.values(this.#tools),
      this.#end,
      this.#invert,
      this.#button("Reset", "Window, zoom and place as at first (0)", on.reset),
      this.#button("Fit", "Whole picture (F)", on.fit),
      this.#cine,
      make("i", "sv-sep"),
      this.#presets,
      this.#button("?", "All keys (?)", on.help),
    );
    stage.append(bar);
    this.element = bar;
    this.#closeMenu();
    this.setCine({ isOffered: false, isPlaying: false });
    document.addEventListener("pointerdown", this.#onOutside);
  }

  /** Which tools a drag may have. */
  get names() {
    return Object.keys(this.#tools);
  }

  /** More tools, in a group of their own; what they do is up to whoever adds them. */
  addTools(tools) {
    this.#end.before(make("i", "sv-sep"));
    for (const { name, label, title } of tools) {
      this.#tools[name] = this.#button(label, title, () => this.#on.tool(name));
      this.#end.before(this.#tools[name]);
    }
  }

  setTool(name) {
    for (const [other, button] of Object.entries(this.#tools)) {
      button.classList.toggle("sv-on", other === name);
      button.setAttribute("aria-pressed", String(other === name));
    }
  }

  /** What fits the series: no window for colour, no slices for a single picture. */
  setOffered({ hasWindow, hasSlices }) {
    this.#tools.window.hidden = !hasWindow;
    this.#presets.hidden = !hasWindow;
    this.#tools.scroll.hidden = !hasSlices;
  }

  setInverted(isInverted) {
    this.#invert.classList.toggle("sv-on", isInverted);
    this.#invert.setAttribute("aria-pressed", String(isInverted));
  }

  setCine({ isOffered, isPlaying }) {
    this.#cine.hidden = !isOffered;
    setText(this.#cine, isPlaying ? "Stop" : "Play");
    this.#cine.classList.toggle("sv-on", isPlaying);
  }

  /** @param {{key: string, label: string, window: import("./contract.js").Window | null}[]} choices */
  setChoices(choices) {
    const items = choices.map(({ key, label, window }, at) => {
      const numbers = window ? `${Number(window.center.toPrecision(5))} / ${Number(window.width.toPrecision(5))}` : "";
      const item = make("button", "sv-item", {
        children: [
          make("kbd", "", { text: key }),
          make("span", "", { text: label }),
          make("small", "", { text: numbers }),
        ],
      });
      item.type = "button";
      item.setAttribute("role", "menuitem");
      item.addEventListener("click", () => {
        this.#closeMenu();
        this.onPreset(at);
      });
      return item;
    });
    this.#menu.replaceChildren(...items);
    this.#closeMenu();
  }

  destroy() {
    document.removeEventListener("pointerdown", this.#onOutside);
  }

  #button(text, title, action) {
    const button = make("button", "sv-tool", { text, title });
    button.type = "button";
    button.addEventListener("click", action);
    return button;
  }

  #toggleMenu() {
    this.#menu.hidden = !this.#menu.hidden;
  }

  #closeMenu() {
    this.#menu.hidden = true;
  }
}
