"""A stored CT, people and the services around it, for the tests of runs, masks and judgements."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI

from backend.agent.policy import Policy
from backend.domain.access import Actor
from backend.domain.feedback import Feedback, TargetKind, Verdict
from backend.domain.mask import MaskVersion
from backend.domain.segmenter import Segmenter
from backend.domain.study import Series
from backend.domain.trace import Event, Run
from backend.runner import Runner
from backend.services import ingest as ingesting
from backend.services import masks, runs
from backend.services.context import Services
from backend.services.studies import open_series, study_details
from backend.settings import Settings
from backend.store.blobs import Blobs
from backend.store.notify import News
from backend.store.repository import Store, new_id
from tests.fakes import BoxSegmenter
from tests.fakes_agent import SayPolicy
from tests.ingest_files import ct_series
from tests.people import RecordingQueue
from tests.services import free_port

T = TypeVar("T")


def say(name: str, **arguments: Any) -> str:
    """A turn that calls a tool."""
    return f"<think>t</think><tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


ANSWER = "<think>seen</think><answer>It is there [s5].</answer>"
# Four pixels of the 6 x 4 frames of `ct_series`: x 1 to 3, y 1 to 3.
BOX = say("sam2", index=1, bbox_2d=[1, 1, 3, 3], label="nodule")


@dataclass
class HeardNews:
    """A notifier that keeps what it should tell."""

    sent: list[News] = field(default_factory=list)

    def send(self, news: News) -> None:
        """Part of `Notifier`."""
        self.sent.append(news)

    def listen(self, heard: Callable[[News], None]) -> Callable[[], None]:
        """Part of `Notifier`."""
        return lambda: None


class Clinic:
    """The services with one set of collaborators, and shorthands for what tests do again and again."""

    def __init__(self, store: Store, blobs: Blobs, settings: Settings, clock: Any, actor: Actor) -> None:
        self.store, self.clock, self.actor = store, clock, actor
        self.news = HeardNews()
        self.services = Services(store, blobs, settings, RecordingQueue(), BoxSegmenter(), self.news, clock)

    def take_in(self, files: Mapping[str, bytes], **stated: str) -> list[Series]:
        """Upload files; the series of the first study that came of them, as the worklist has them."""
        services, actor = self.services, self.actor
        (project_id, *_) = actor.project_ids
        upload = ingesting.open_upload(
            actor, project_id, request_key=new_id(), store=self.store, clock=self.clock, **stated
        )
        with ingesting.open_receiver(
            actor, upload.id, store=self.store, blobs=services.blobs, settings=services.settings
        ) as receiver:
            for name, data in files.items():
                receiver.open_file(name)
                receiver.write(data)
                receiver.close_file()
        ingesting.finish_receiving(actor, upload.id, store=self.store, clock=self.clock)
        assert ingesting.ingest(
            upload.id,
            store=self.store,
            blobs=services.blobs,
            settings=services.settings,
            clock=self.clock,
            owner="test",
            until_s=60,
        )
        done = ingesting.upload_status(actor, upload.id, store=self.store)
        return self.series_of_study(done.study_ids[0])

    def series_of_study(self, study_id: str) -> list[Series]:
        """All series of a study, newest arrangement first."""
        found = study_details(self.actor, study_id, store=self.store).series
        return [self.series(each.id) for each in found]

    def series(self, series_id: str) -> Series:
        """One series."""
        with self.store.transaction(read_only=True) as tx:
            return open_series(self.actor, series_id, tx).series

    def ct(self, slices: int = 3) -> Series:
        """A uniform CT of 4 x 6 pixels; slice k lies at 3 k mm and holds k."""
        (series,) = self.take_in(ct_series(slices))
        return series

    # ---- runs

    def ask(self, series: Series, *, actor: Actor | None = None, **asked: Any) -> Run:
        """Put a question in the queue."""
        given = {"question": "Is there a nodule?", "request_key": new_id(), **asked}
        return runs.start_run(actor or self.actor, series.id, store=self.store, clock=self.clock, **given)

    def runner(self, policy: Policy | None = None, *, segmenter: Segmenter | None = None, threads: int = 1) -> Runner:
        """A runner; unless told otherwise its policy boxes a nodule and answers."""
        services = replace(self.services, segmenter=segmenter or self.services.segmenter)
        return Runner(services, policy or SayPolicy(BOX, ANSWER), threads=threads)

    def answered(self, series: Series, *, policy: Policy | None = None, **asked: Any) -> Run:
        """A run that was asked for and worked off."""
        run = self.ask(series, **asked)
        assert self.runner(policy).work_one()
        return self.run(run.id)

    def run(self, run_id: str) -> Run:
        """A run as stored."""
        return runs.get_run(self.actor, run_id, store=self.store)

    def events(self, run_id: str) -> list[Event]:
        """Its events; they count from 1 without a gap."""
        events = runs.events_of_run(run_id, after=0, store=self.store)[1]
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        return events

    def kinds(self, run_id: str) -> list[str]:
        """The kinds of its events."""
        return [event.payload.kind for event in self.events(run_id)]

    # ---- masks

    def begin(self, series: Series, label: str = "Lung", **given: Any) -> MaskVersion:
        """An empty mask."""
        key = given.pop("request_key", new_id())
        return masks.begin_mask(
            given.pop("actor", self.actor), series.id, label=label, request_key=key, store=self.store,
            clock=self.clock, **given,
        )  # fmt: skip

    def judgement(self, run: Run, target: TargetKind, verdict: Verdict = Verdict.ACCEPT, **fields: Any) -> Feedback:
        """A judgement that is not submitted yet."""
        given = {"request_key": new_id(), **fields}
        return Feedback(new_id(), run.id, self.actor.user_id, target, verdict, self.clock(), **given)


def at_once(*actions: Callable[[], T]) -> list[T | Exception]:
    """Do all at the same time; what each gave or raised."""

    def tried(action: Callable[[], T]) -> T | Exception:
        try:
            return action()
        except Exception as error:  # noqa: BLE001  (handed to the test)
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(tried, actions))


def of_kind(events: Iterable[Event], kind: str) -> list[Event]:
    """The events of one kind."""
    return [event for event in events if event.payload.kind == kind]


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """An application on a free port of this machine, answering real HTTP; gives its address."""
    port = free_port()
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="served", daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server did not start in time"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(15)


@dataclass(frozen=True, slots=True)
class Sent:
    """One server-sent event; a comment has the name ":"."""

    name: str
    data: str
    id: int | None = None


def read_stream(lines: Iterable[str]) -> Iterator[Sent]:
    """Server-sent events of an answer's lines, as the standard reads them."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield Sent(":", line[1:].strip())
        elif line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            if "data" in fields:
                number = fields.get("id")
                yield Sent(fields.get("event", "message"), fields["data"], None if number is None else int(number))
            fields = {}
