"""`serpens ask`: put a question from the command line and follow the run until it stopped."""

import time
from collections.abc import Iterator
from uuid import uuid4

from backend.domain.access import Actor
from backend.domain.errors import PlatformError
from backend.domain.trace import (
    AnswerGiven,
    CorrectionGiven,
    Event,
    ImageShown,
    ModelSpoke,
    QuestionAsked,
    RunState,
    RunStopped,
    ToolCalled,
    ToolFailed,
    ToolReturned,
)
from backend.services import runs
from backend.services.context import Clock
from backend.store.repository import Store

POLL_S = 0.1


class NoRunner(PlatformError):
    """Nobody took the question up."""

    code = "no_runner"
    http_status = 503


def ask(
    actor: Actor,
    series_id: str,
    question: str,
    *,
    frame_index: int,
    patience_s: float,
    store: Store,
    clock: Clock,
) -> Iterator[Event]:
    """Ask, and give the events as they are stored.

    Raises:
        NoRunner: If no runner has taken the run up after `patience_s`, or the one that had it has been silent for as
            much longer than the whole run may take; the run is cancelled then.
    """
    run = runs.start_run(
        actor, series_id, question=question, frame_index=frame_index, request_key=uuid4().hex, store=store, clock=clock
    )
    heard_at_s, after = time.monotonic(), 0
    while True:
        run, events = runs.events_of_run(run.id, after=after, store=store)
        yield from events
        if events:
            heard_at_s, after = time.monotonic(), events[-1].sequence
        if run.state is RunState.STOPPED and after >= run.event_count:
            return
        most_s = patience_s if run.state is RunState.QUEUED else patience_s + run.limits.seconds
        if time.monotonic() - heard_at_s > most_s:
            runs.cancel_run(actor, run.id, store=store)
            raise NoRunner(f"nobody has worked on run {run.id} for {most_s:g} s; is `serpens run` at work?")
        time.sleep(POLL_S)


def as_line(event: Event) -> str:
    """An event in words, for a terminal."""
    payload = event.payload
    match payload:
        case QuestionAsked():
            words = f"{payload.question}  [{payload.policy.label or payload.policy.name}]"
        case ModelSpoke():
            words = payload.thought or payload.text
        case ToolCalled():
            words = f"{payload.tool} {payload.arguments}"
        case ToolReturned():
            words = f"{payload.text}  [{payload.body.name} {payload.body.version}]"
        case ToolFailed():
            words = f"{payload.code}: {payload.message}"
        case ImageShown():
            words = f"picture {payload.index}, {payload.view.width} x {payload.view.height}"
        case RunStopped():
            words = f"{payload.reason.value} {payload.message}".rstrip()
        case CorrectionGiven() | AnswerGiven():
            words = payload.text
    return f"{event.sequence:3} {payload.kind}: {words}"
