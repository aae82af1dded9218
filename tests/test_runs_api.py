"""Runs, masks and judgements over HTTP: the stream of events above all."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete
from sqlalchemy.orm import Session

from backend.api import events as streaming
from backend.api import guard as guarding
from backend.api.events import EventHub, stream_events
from backend.domain.access import Actor, Role
from backend.domain.mask import pack_plane
from backend.domain.trace import Run
from backend.main import create_app
from backend.services import runs
from backend.services.context import utc_now
from backend.store.notify import News, PostgresNotifier, SocketNotifier
from backend.store.repository import new_id
from backend.store.tables import MembershipRow
from tests.clinic import ANSWER, BOX, Clinic, Sent, read_stream, served
from tests.fakes import BoxSegmenter
from tests.fakes_agent import SayPolicy
from tests.ingest_files import ct_series
from tests.people import RecordingQueue, open_session

TRACE = b'{"target": "trace", "verdict": "accept", "request_key": "12345678", '
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Web:
    """The application behind a real port, and a clinic whose runner works on the same database."""

    def __init__(self, clinic: Clinic, app: Any, url: str) -> None:
        self.clinic, self.app, self.url = clinic, app, url
        # What a runner process has: the same rows, and a notifier that reaches the web process.
        clinic.services = replace(clinic.services, notifier=app.state.services.notifier)
        self.hub: EventHub = app.state.event_hub

    def client(self, actor: Actor | None = None) -> httpx.Client:
        token, _ = open_session(self.clinic.store, actor or self.clinic.actor, utc_now())
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)

    def follow(self, run: Run, *, client: httpx.Client | None = None, **request: Any) -> Iterator[Sent]:
        with (
            client or self.client() as signed_in,
            signed_in.stream("GET", f"/api/runs/{run.id}/events", **request) as answer,
        ):
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield from read_stream(answer.iter_lines())


@pytest.fixture
def web(store, blobs, settings, actor) -> Iterator[Web]:
    clinic = Clinic(store, blobs, settings, utc_now, actor)
    app = create_app(settings, queue=RecordingQueue(), segmenter=BoxSegmenter())
    with served(app) as url:
        yield Web(clinic, app, url)


def numbers(sent: list[Sent]) -> list[int]:
    return [one.id for one in sent if one.name == "trace" and one.id is not None]


def soon(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- the stream


def test_a_stopped_run_is_replayed_whole_and_the_stream_ends(web: Web) -> None:
    run = web.clinic.answered(web.clinic.ct())
    sent = list(web.follow(run))
    assert numbers(sent) == list(range(1, 10))
    assert sent[-1] == Sent("end", "{}")
    assert [json.loads(one.data)["payload"]["kind"] for one in sent[:-1]] == web.clinic.kinds(run.id)


@on_sqlite
@pytest.mark.parametrize(
    ("request_", "first"),
    [
        ({"headers": {"Last-Event-ID": "6"}}, 7),
        ({"params": {"after": 4}}, 5),
        ({"params": {"after": 2}, "headers": {"Last-Event-ID": "7"}}, 8),
        ({"headers": {"Last-Event-ID": "what"}}, 1),
        ({"headers": {"Last-Event-ID": "9" * 40}}, None),
        ({"params": {"after": 9}}, None),
    ],
)
def test_a_page_that_reconnects_gets_exactly_what_it_misses(
    web: Web, request_: dict[str, Any], first: int | None
) -> None:
    sent = list(web.follow(web.clinic.answered(web.clinic.ct()), **request_))
    assert numbers(sent) == ([] if first is None else list(range(first, 10)))
    assert sent[-1].name == "end"


def test_events_come_while_the_run_works_and_previews_have_no_number(web: Web) -> None:
    run = web.clinic.ask(web.clinic.ct())
    sent: list[Sent] = []
    following = threading.Thread(target=lambda: sent.extend(web.follow(run)))
    following.start()
    soon(lambda: web.hub._waiting)

    class Slow(SayPolicy):
        def speak(self, messages: Any, **keywords: Any) -> Any:
            said = super().speak(messages, **keywords)
            time.sleep(0.1)
            return said

    assert web.clinic.runner(Slow(BOX, ANSWER)).work_one()
    following.join(20)
    assert numbers(sent) == list(range(1, 10))
    previews = [one for one in sent if one.name == "preview"]
    assert [json.loads(one.data) for one in previews] == [{"text": BOX}, {"text": ANSWER}]
    assert {one.id for one in previews} == {None}
    assert sent.index(previews[0]) < next(at for at, one in enumerate(sent) if one.id == 3)
    soon(lambda: not web.hub._waiting)


@on_sqlite
def test_who_is_removed_from_the_project_is_shown_no_more_of_a_run(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "STREAM_CHECKED_EVERY", timedelta(0))
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.1)
    clinic, sent = web.clinic, []
    run = clinic.ask(clinic.ct())

    def follow() -> None:
        with suppress(httpx.RemoteProtocolError):  # the answer is cut off
            sent.extend(web.follow(run))

    following = threading.Thread(target=follow)
    following.start()
    soon(lambda: web.hub._waiting)
    with Session(clinic.store.engine) as session, session.begin():
        session.execute(delete(MembershipRow).where(MembershipRow.user_id == clinic.actor.user_id))
    following.join(10)
    assert not following.is_alive()
    assert "end" not in [one.name for one in sent]
    soon(lambda: not web.hub._waiting)


def test_c51_closing_the_tab_frees_its_place_and_stops_nothing(web: Web) -> None:
    run = web.clinic.ask(web.clinic.ct())
    for _ in range(5):
        client = web.client()
        with client.stream("GET", f"/api/runs/{run.id}/events") as answer:
            lines = answer.iter_lines()  # an iterator that nobody holds closes the answer
            next(lines)
            soon(lambda: web.hub._waiting)
        client.close()
    soon(lambda: not web.hub._waiting)
    assert web.clinic.runner().work_one()
    assert web.clinic.run(run.id).stop_reason == "answered"
    assert numbers(list(web.follow(run))) == list(range(1, 10))


def test_c53_two_people_see_their_own_runs_and_no_word_of_the_others(
    web: Web, make_actor: Any, make_project: Any
) -> None:
    project = make_project("Other")
    other = make_actor(Role.CLINICIAN, project)
    theirs = Clinic(web.clinic.store, web.clinic.services.blobs, web.clinic.services.settings, utc_now, other)
    runs_asked = [web.clinic.ask(web.clinic.ct(), question="first?"), theirs.ask(theirs.ct(), question="second?")]
    sent: dict[int, list[Sent]] = {0: [], 1: []}
    clients = [web.client(), web.client(other)]
    following = [
        threading.Thread(target=lambda at=at: sent[at].extend(web.follow(runs_asked[at], client=clients[at])))
        for at in (0, 1)
    ]
    for thread in following:
        thread.start()
    soon(lambda: len(web.hub._waiting) == 2)
    runner = web.clinic.runner()
    assert runner.work_one()
    assert runner.work_one()
    for thread in following:
        thread.join(20)
    for at, words in enumerate(("first?", "second?")):
        assert numbers(sent[at]) == list(range(1, 10))
        assert json.loads(sent[at][0].data)["payload"]["question"] == words
    assert web.client(other).get(f"/api/runs/{runs_asked[0].id}/events").status_code == 404


def test_a_stream_that_has_nothing_to_say_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_S", 0.5)

    async def read_some() -> list[bytes]:
        hub = EventHub(SocketNotifier(Path("nowhere")))
        stream = stream_events("run", after=0, hub=hub, read=lambda _: ([], False))
        pieces = [await anext(stream) for _ in range(2)]
        await stream.aclose()
        assert hub._waiting == {}
        return pieces

    assert asyncio.run(read_some()) == [b"retry: 1000\n\n", b": still here\n\n"]


@on_sqlite
def test_c57_twenty_streams_wait_for_no_writer(web: Web) -> None:
    run = web.clinic.answered(web.clinic.ct())
    with web.clinic.store.transaction(), web.client() as client:  # SQLite's one write lock is taken
        started = time.monotonic()
        with client.stream("GET", f"/api/runs/{run.id}/events") as answer:
            assert numbers(list(read_stream(answer.iter_lines()))) == list(range(1, 10))
        assert time.monotonic() - started < 5


# ---- news


def test_news_reach_a_listener_and_rubbish_stops_nobody(settings: Any, database_url: str) -> None:
    from backend.store.notify import open_notifier

    listening, sending = (open_notifier(database_url, settings.home) for _ in range(2))
    heard: list[News] = []
    stop = listening.listen(heard.append)
    try:
        deadline = time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            sending.send(News("run", "words <3 cm"))
            time.sleep(0.05)
        if isinstance(sending, SocketNotifier):
            sending._sender.sendto(b"rubbish", str(sending._path))
        elif isinstance(sending, PostgresNotifier):
            sending._connection.execute("SELECT pg_notify('serpens_runs', 'rubbish')")
        sending.send(News("run", "x" * 8_000))
        sending.send(News("last"))
        soon(lambda: News("last") in heard)
    finally:
        stop()
    assert {news.preview for news in heard} == {"words <3 cm", None}


# ---- routes


@on_sqlite
def test_a_run_is_asked_read_cancelled_and_continued(web: Web) -> None:
    series = web.clinic.ct()
    with web.client() as client:
        asked = {"question": "Is it there?", "request_key": "12345678", "options": ["Yes", "No"], "frame_count": 3}
        answer = client.post(f"/api/series/{series.id}/runs", json=asked)
        assert answer.status_code == 201
        run = answer.json()
        assert (run["state"], run["options"], run["event_count"]) == ("queued", ["Yes", "No"], 0)
        assert client.post(f"/api/series/{series.id}/runs", json=asked).json()["id"] == run["id"]
        assert client.post(f"/api/series/{series.id}/runs", json=asked | {"frame_count": 2}).json()["error"][
            "code"
        ] == ("series_changed")
        web.clinic.runner().work_one()
        assert client.get(f"/api/runs/{run['id']}").json()["stop_reason"] == "answered"
        assert [one["id"] for one in client.get(f"/api/series/{series.id}/runs").json()["runs"]] == [run["id"]]
        png = client.get(f"/api/runs/{run['id']}/pictures/1")
        assert (png.headers["content-type"], png.headers["cache-control"]) == ("image/png", "no-store")
        going_on = {"from_sequence": 5, "correction": "no", "request_key": "87654321"}
        child = client.post(f"/api/runs/{run['id']}/continue", json=going_on).json()
        assert (child["parent_run_id"], child["parent_sequence"]) == (run["id"], 5)
        assert client.post(f"/api/runs/{child['id']}/cancel").json()["cancel_requested"] is True
        early = client.post(
            f"/api/runs/{run['id']}/continue", json=going_on | {"from_sequence": 4, "request_key": "x" * 8}
        )
        assert (early.status_code, early.json()["error"]["code"]) == (409, "not_judgeable")


@on_sqlite
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/series/{series}/runs", b'{"question": "a", "request_key": "short"}'),
        ("/api/series/{series}/runs", b'{"question": "a", "request_key": "12345678", "limits": {"seconds": NaN}}'),
        ("/api/series/{series}/runs", b'{"question": "a", "request_key": "12345678", "limits": {"seconds": Infinity}}'),
        ("/api/series/{series}/runs", b'{"question": "a\\u0000", "request_key": "12345678"}'),
        ("/api/series/{series}/runs", b'{"question": "a\\ud800", "request_key": "12345678"}'),
        ("/api/series/{series}/runs", b'{"question": "a", "request_key": "1234567\\u0000"}'),
        ("/api/series/{series}/prompts", b'{"frame_index": 0, "box": [NaN, 0, 1, 1]}'),
        ("/api/series/{series}/prompts", b'{"frame_index": 0, "box": [0, 0, 1, 1], "concept": "lungs"}'),
        ("/api/series/{series}/prompts", b'{"frame_index": 0, "points": [[1, 1]], "labels": []}'),
        ("/api/runs/{run}/continue", b'{"from_sequence": 5, "request_key": "12345678", "box": [0, NaN, 1, 1]}'),
        ("/api/runs/{run}/continue", b'{"from_sequence": 99999999999999999999, "request_key": "12345678"}'),
        ("/api/runs/{run}/feedback", TRACE + b'"seconds_spent": Infinity}'),
        ("/api/runs/{run}/feedback", TRACE + b'"sequence": 99999999999999999999}'),
        ("/api/runs/{run}/feedback", TRACE + b'"corrected_box": [0, 0, NaN, 1]}'),
    ],
)  # fmt: skip
def test_what_no_database_keeps_is_refused_at_the_door(web: Web, path: str, body: bytes) -> None:
    run = web.clinic.answered(web.clinic.ct())
    with web.client() as client:
        address = path.format(series=run.series_id, run=run.id)
        answer = client.post(address, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")


def test_a_mask_is_drawn_over_http_and_a_second_tab_is_told(web: Web) -> None:
    import numpy as np

    series = web.clinic.ct()
    plane = np.zeros((4, 6), bool)
    plane[1, 2] = True
    with web.client() as client:
        begun = client.post(f"/api/series/{series.id}/masks", json={"label": "Lung", "request_key": new_id()}).json()
        place = f"/api/masks/{begun['mask_id']}/planes/1/2"
        saves = [{"base_version": "1", "request_key": new_id()} for _ in range(2)]
        first = client.put(place, params=saves[0], content=pack_plane(plane))
        assert (first.status_code, first.json()["version"]) == (200, 2)
        assert client.put(place, params=saves[0], content=pack_plane(plane)).json()["id"] == first.json()["id"]
        second = client.put(place, params=saves[1], content=pack_plane(plane))
        assert (second.status_code, second.json()["error"]["code"]) == (409, "mask_conflict")
        assert second.json()["error"]["details"] == {"latest": 2}
        assert client.put(place, params={**saves[1], "base_version": "2"}, content=b"junk").status_code == 422
        read = client.get(f"/api/mask-versions/{first.json()['id']}/planes/1/2")
        assert (read.content, read.headers["cache-control"]) == (pack_plane(plane), "no-store")
        (listed,) = client.get(f"/api/series/{series.id}/masks").json()["masks"]
        assert (listed["version"], listed["segments"][0]["frames"]) == (
            2,
            [{"frame_index": 2, "area_px": 1, "area_mm2": 1.0}],
        )
        undone = client.post(
            f"/api/masks/{begun['mask_id']}/restore",
            json={"version": 1, "base_version": 2, "request_key": new_id()},
        ).json()
        assert (undone["version"], undone["segments"][0]["voxels"]) == (3, 0)


@on_sqlite
def test_c31_a_plane_of_another_size_is_refused(web: Web) -> None:
    import numpy as np

    (other,) = web.clinic.take_in(ct_series(2, study="1.9"))
    with web.client() as client:
        begun = client.post(f"/api/series/{other.id}/masks", json={"label": "Lung", "request_key": new_id()}).json()
        params = {"base_version": "1", "request_key": new_id()}
        for frame_index, plane in ((0, np.ones((512, 512), bool)), (2, np.ones((4, 6), bool))):
            answer = client.put(
                f"/api/masks/{begun['mask_id']}/planes/1/{frame_index}", params=params, content=pack_plane(plane)
            )
            assert answer.status_code in (404, 422)
        assert len(client.get(f"/api/masks/{begun['mask_id']}/versions").json()["versions"]) == 1


@on_sqlite
def test_a_prompt_is_previewed_and_accepted_over_http(web: Web) -> None:
    series = web.clinic.ct()
    prompt = {"frame_index": 1, "box": [1, 1, 3, 3]}
    with web.client() as client:
        seen = client.post(f"/api/series/{series.id}/prompts", json=prompt).json()
        assert (seen["area_px"], seen["area_mm2"]) == (4, 4.0)
        accepting = {"prompt": prompt, "bits_sha256": seen["bits_sha256"], "label": "Nodule", "request_key": new_id()}
        stored = client.post(f"/api/series/{series.id}/prompts/accept", json=accepting)
        assert (stored.status_code, stored.json()["segments"][0]["voxels"]) == (201, 4)
        wrong = accepting | {"bits_sha256": "0" * 64, "request_key": new_id()}
        answer = client.post(f"/api/series/{series.id}/prompts/accept", json=wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "preview_changed")
        unknown = client.post(f"/api/series/{series.id}/prompts", json={"frame_index": 0, "concept": "unicorn"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "unknown_concept")
        assert client.post(f"/api/series/{series.id}/prepare", json={"frame_index": 0}).status_code == 202


def test_c61_a_judgement_whose_answer_was_lost_is_sent_again_and_stored_once(web: Web) -> None:
    run = web.clinic.answered(web.clinic.ct())
    body = {"target": "step", "sequence": 4, "verdict": "reject", "comment": "<3 cm", "request_key": "12345678"}
    with web.client() as client:
        ids = {client.post(f"/api/runs/{run.id}/feedback", json=body).json()["id"] for _ in range(3)}
        (stored,) = client.get(f"/api/runs/{run.id}/feedback").json()["feedback"]
    assert ids == {stored["id"]}
    assert (stored["comment"], stored["sequence"]) == ("<3 cm", 4)


def test_strange_ids_are_no_ids(web: Web) -> None:
    with web.client() as client:
        things = ("runs/{}", "runs/{}/events", "runs/{}/feedback", "masks/{}/versions", "mask-versions/{}")
        things += ("series/{}/masks", "series/{}/runs")
        for path in (f"/api/{thing.format(strange)}" for thing in things for strange in ("%00", "a%00b", "%ff")):
            assert client.get(path).status_code in (404, 422), path


@on_sqlite
def test_the_runs_of_the_same_series_come_newest_first(web: Web) -> None:
    series = web.clinic.ct()
    asked = [web.clinic.ask(series).id for _ in range(3)]
    found = runs.runs_of_series(web.clinic.actor, series.id, store=web.clinic.store)
    assert [run.id for run in found] == asked[::-1]
