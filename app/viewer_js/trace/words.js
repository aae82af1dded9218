// Steps, limits and times of a run as people read them.

const STOPPED = {
  answered: "answered",
  max_turns: "stopped: no answer within its turns",
  max_tokens: "stopped: its text limit was reached",
  max_tool_calls: "stopped: no answer within its tool calls",
  no_progress: "stopped: no progress",
  timeout: "stopped: out of time",
  unreadable: "stopped: it could not be understood",
  cancelled: "cancelled",
  failed: "failed",
};

// What the demonstration policy answers of each structure that a segmenter finds by name, in words that it knows.
const QUESTIONS = [
  [/^lungs?$/, ["Outline both lungs. Is one side smaller?", "How large are the lungs?"]],
  [/nucle/, ["Where are the nuclei? How large are they?"]],
  [/^bones?$/, ["How dense is the bone in this slice?"]],
  [/^body$/, ["How large is the body in this slice?"]],
  [/^fat$/, ["How large is the area of fat in this slice?"]],
  [/^air$/, ["Is there air in this slice?"]],
];
const MOST_QUESTIONS = 4;

/** What a call does, in words. `called` is the payload of a `ToolCalled`. */
export function callTitle({ tool, arguments: given, written }) {
  const asked = { ...written?.arguments, ...given };
  const label = typeof asked.label === "string" && asked.label !== "region" ? ` “${asked.label}”` : "";
  switch (tool) {
    case "biomedparse":
      return `Find “${asked.captions ?? ""}”`;
    case "sam2":
      return `Outline${label} ${asked.points ? "at points" : "in box"}`;
    case "zoom_in":
      return `Zoom in${label && ` on${label}`}`;
    case "set_window":
      return `Set window ${asked.center} / ${asked.width}`;
    case "go_to_slice":
      return `Go to slice ${asked.slice}`;
    case "measure":
      return { area: "Measure area", intensity: "Measure values", length: "Measure length" }[asked.quantity] ?? "Measure";
    default:
      return `Call ${tool}`;
  }
}

export function stopWords(reason) {
  return STOPPED[reason] ?? `stopped: ${String(reason).replaceAll("_", " ")}`;
}

/** 0.02 s, 3.1 s, 2 min 5 s. */
export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 1) return `${value.toFixed(2)} s`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

/** A picture in words: which slice, which part, which window. `view` is that of an `ImageShown`. */
export function pictureWords(view, frameCount, isPart) {
  const words = [frameCount > 1 ? `slice ${view.frame_index + 1} of ${frameCount}` : "the picture"];
  if (isPart) words.push("a part of it");
  if (view.window) words.push(`window ${short(view.window.center)} / ${short(view.window.width)}`);
  return words.join(" · ");
}

/** The questions to offer where these structures are found by name. */
export function suggestions(concepts) {
  const found = QUESTIONS.filter(([pattern]) => concepts.some((concept) => pattern.test(concept)));
  return found.flatMap(([, questions]) => questions).slice(0, MOST_QUESTIONS);
}

/** JSON on one line, with room after commas and colons. */
export function spaced(value) {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${spaced(one)}`).join(", ")}}`;
}

/** Text cut at its citations: strings, and `{cite, label, sequence}` where `[s7]` or `[p7]` stood. */
export function citations(text) {
  return text.split(/(\[[sp]\d{1,9}\])/).map((part) => {
    const cited = /^\[([sp])(\d+)\]$/.exec(part);
    return cited ? { cite: part, label: cited[1], sequence: Number(cited[2]) } : part;
  });
}

function short(value) {
  return String(Math.round(value * 100) / 100);
}
