// The events of a run folded into what a person judges: one step for each call, for the answer, for a turn that could
// not be read. Pure: the same events give the same steps, live or replayed.

/**
 * @typedef {object} TraceEvent
 * @property {number} sequence
 * @property {string} at
 * @property {number|null} parent
 * @property {boolean} sampled
 * @property {{kind: string}} payload
 */

/**
 * @typedef {object} Step
 * @property {string} key                "<run id>/<sequence of what began it>".
 * @property {string} runId
 * @property {number} number             From 1 within its run.
 * @property {"spoke"|"call"|"answer"|"unreadable"|"correction"} kind
 * @property {TraceEvent|null} spoke     The turn that it begins; null for a further call of the same turn.
 * @property {TraceEvent|null} called
 * @property {TraceEvent|null} result    `ToolReturned` or `ToolFailed`.
 * @property {TraceEvent|null} shown     The picture that came with the result.
 * @property {TraceEvent|null} answer
 * @property {TraceEvent|null} correction
 */

export class Trace {
  /** @param {string} runId */
  constructor(runId) {
    this.runId = runId;
    this.events = [];
    this.steps = [];
    this.asked = null;
    this.stopped = null;
    /** Pictures that belong to no step: what the model was shown with the question. */
    this.opening = [];
    this.pictures = new Map();
    this.masks = [];
  }

  /** The newest event. */
  get last() {
    return this.events.at(-1);
  }

  /** The newest turn. */
  get lastSpoke() {
    return this.events.findLast((event) => event.payload.kind === "ModelSpoke");
  }

  /** Take in the next event; one that was taken in before (a reconnect) changes nothing. False where it did. */
  add(event) {
    if (event.sequence <= (this.last?.sequence ?? 0)) return false;
    this.events.push(event);
    const take = TAKES[event.payload.kind];
    // An event of a kind that this page does not know is kept and not shown.
    if (take) take(this, event);
    return true;
  }

  /** The step that holds an event, or undefined. */
  stepOf(sequence) {
    return this.steps.find((step) => eventsOf(step).some((event) => event.sequence === sequence));
  }

  begin(kind, event, parts) {
    const step = {
      key: `${this.runId}/${event.sequence}`,
      runId: this.runId,
      number: this.steps.length + 1,
      kind,
      spoke: null,
      called: null,
      result: null,
      shown: null,
      answer: null,
      correction: null,
      ...parts,
    };
    this.steps.push(step);
    return step;
  }

  /** The step of a turn that has no act yet, or a further one for the next act of the same turn. */
  actOf(event, kind, part) {
    const open = this.steps.find((step) => step.kind === "spoke" && step.spoke.sequence === event.parent);
    if (open) Object.assign(open, { kind, [part]: event });
    else this.begin(kind, event, { [part]: event });
  }
}

const TAKES = {
  QuestionAsked: (trace, event) => (trace.asked = event),
  ModelSpoke: (trace, event) => trace.begin("spoke", event, { spoke: event }),
  ToolCalled: (trace, event) => trace.actOf(event, "call", "called"),
  ToolReturned: takeResult,
  ToolFailed: (trace, event) => (event.payload.tool === "" ? trace.actOf(event, "unreadable", "result") : takeResult(trace, event)),
  AnswerGiven: (trace, event) => trace.actOf(event, "answer", "answer"),
  CorrectionGiven: (trace, event) => trace.begin("correction", event, { correction: event }),
  RunStopped: (trace, event) => (trace.stopped = event),
  ImageShown(trace, event) {
    trace.pictures.set(event.payload.index, event);
    const step = trace.steps.find(({ result }) => result && result.sequence === event.parent);
    if (step) step.shown = event;
    else trace.opening.push(event);
  },
};

function takeResult(trace, event) {
  const step = trace.steps.find(({ called }) => called && called.sequence === event.parent);
  if (step) step.result = event;
  trace.masks.push(...(event.payload.masks ?? []));
}

export function eventsOf({ spoke, called, result, shown, answer, correction }) {
  return [spoke, called, result, shown, answer, correction].filter(Boolean);
}

/** What a judgement of the step names, or null where nothing can be judged yet. */
export function targetOf(step) {
  if (step.kind === "answer") return { target: "answer", sequence: step.answer.sequence };
  if (step.kind === "call") return step.result ? { target: "step", sequence: step.called.sequence } : null;
  return step.spoke ? thoughtOf(step) : null;
}

/** What a judgement of the thought names; null for a further call of one turn. */
export function thoughtOf({ spoke }) {
  return spoke ? { target: "step", sequence: spoke.sequence } : null;
}

/** The event that a continued run goes on from, or null. */
export function continuesFrom({ result, answer }) {
  return (answer ?? result)?.sequence ?? null;
}

/** How long the step took: the turn and the tool. */
export function secondsOf({ spoke, result }) {
  if (!spoke && !result) return null;
  return (spoke?.payload.seconds ?? 0) + (result?.payload.seconds ?? 0);
}
