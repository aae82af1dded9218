"""Runs as rows: asked for once, worked off under a lease, given back, taken up again, cancelled, continued."""

import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from backend.agent.policy import Utterance
from backend.domain.access import Role
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.mask import AuthorKind, pack_plane
from backend.domain.trace import (
    ModelSpoke,
    QuestionAsked,
    Run,
    RunLimits,
    RunState,
    RunStopped,
    StopReason,
)
from backend.runner import LeaveRun
from backend.services import masks, runs
from backend.services.reviews import NotJudgeable
from backend.services.runs import Correction, StoredTrace
from backend.services.studies import SeriesChanged
from backend.store.runs import LeaseLost
from tests.clinic import ANSWER, BOX, Clinic, at_once, of_kind, say
from tests.fakes_agent import SayPolicy

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
WHOLE = [
    "QuestionAsked", "ImageShown", "ModelSpoke", "ToolCalled", "ToolReturned", "ImageShown", "ModelSpoke",
    "AnswerGiven", "RunStopped",
]  # fmt: skip


@pytest.fixture
def clinic(store, blobs, settings, clock, actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


def claim(clinic: Clinic, owner: str, *, lease_s: float = 60) -> Run | None:
    return runs.claim_run(owner=owner, lease_s=lease_s, store=clinic.store, clock=clinic.clock)


def sink(clinic: Clinic, run: Run, owner: str) -> StoredTrace:
    return StoredTrace(run.id, owner=owner, store=clinic.store, notifier=clinic.news, clock=clinic.clock)


def spoke(text: str = "words") -> ModelSpoke:
    return ModelSpoke(text=text)


# ---- asking


def test_a_question_is_worked_off_and_every_event_is_told_after_it_is_stored(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    assert (run.state, run.stop_reason, run.event_count) == (RunState.STOPPED, StopReason.ANSWERED, 9)
    assert clinic.kinds(run.id) == WHOLE
    assert [news.preview for news in clinic.news.sent if news.run_id == run.id].count(None) == 9
    assert [event.sampled for event in clinic.events(run.id)].count(True) == 2


def test_the_mask_of_a_step_is_stored_with_its_step_and_on_its_slice(clinic: Clinic) -> None:
    series = clinic.ct()
    run = clinic.answered(series, frame_index=2)
    (returned,) = of_kind(clinic.events(run.id), "ToolReturned")
    (made,) = returned.payload.masks
    assert (made.frame_index, made.area_px, made.area_mm2, made.box) == (2, 4, 4.0, (1, 1, 3, 3))
    with clinic.store.transaction(read_only=True) as tx:
        version = tx.masks.get(made.mask_version_id)
    assert version.voxels == {1: {2: 4}}
    assert (version.author.run_id, version.author.sequence) == (run.id, returned.sequence)


def test_the_same_request_finds_its_run(clinic: Clinic) -> None:
    series = clinic.ct()
    first = clinic.ask(series, request_key="the same key")
    assert clinic.ask(series, request_key="the same key", question="Another?").id == first.id
    assert len(runs.runs_of_series(clinic.actor, series.id, store=clinic.store)) == 1


def test_c61_the_same_request_eight_times_at_once_is_one_run(clinic: Clinic) -> None:
    series = clinic.ct()
    found = at_once(*[lambda: clinic.ask(series, request_key="the same key").id] * 8)
    assert len(set(found)) == 1
    assert len(runs.runs_of_series(clinic.actor, series.id, store=clinic.store)) == 1


@on_sqlite
def test_a_request_key_of_another_series_or_step_is_a_conflict(clinic: Clinic) -> None:
    from tests.ingest_files import ct_series

    one = clinic.ct()
    (other,) = clinic.take_in(ct_series(2, study="1.9"))
    asked = clinic.ask(one, request_key="the same key")
    with pytest.raises(Conflict, match="another run"):
        clinic.ask(other, request_key="the same key")
    clinic.runner().work_one()
    with pytest.raises(Conflict, match="another run"):
        runs.continue_run(
            clinic.actor, asked.id, from_sequence=5, request_key="the same key", store=clinic.store, clock=clinic.clock
        )


@on_sqlite
@pytest.mark.parametrize(
    "wrong",
    [
        {"question": " "},
        {"question": "x" * 2_001},
        {"question": "a\x00b"},
        {"question": "a\ud800b"},
        {"options": ("",)},
        {"options": tuple("abcdefghi")},
        {"frame_index": 3},
        {"frame_index": -1},
        {"limits": RunLimits(seconds=3_601)},
        {"limits": RunLimits(seconds=float("inf"))},
        {"limits": RunLimits(turns=101)},
    ],
)
def test_what_cannot_be_asked_is_refused(clinic: Clinic, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        clinic.ask(clinic.ct(), **wrong)


@on_sqlite
def test_a_question_about_a_series_that_grew_since_it_was_opened_is_refused(clinic: Clinic) -> None:
    with pytest.raises(SeriesChanged, match="has 3 frames now, it was opened with 2"):
        clinic.ask(clinic.ct(3), frame_index=1, frame_count=2)


@on_sqlite
def test_c69_a_stranger_finds_no_run(clinic: Clinic, make_actor: Any, make_project: Any) -> None:
    run = clinic.answered(clinic.ct())
    stranger = make_actor(Role.CLINICIAN, make_project("Other"))
    collaborators = {"store": clinic.store}
    for attempt in (
        lambda: runs.get_run(stranger, run.id, **collaborators),
        lambda: runs.runs_of_series(stranger, run.series_id, **collaborators),
        lambda: runs.cancel_run(stranger, run.id, **collaborators),
        lambda: runs.picture_of_run(stranger, run.id, 1, blobs=clinic.services.blobs, **collaborators),
        lambda: runs.continue_run(
            stranger, run.id, from_sequence=5, request_key="12345678", clock=clinic.clock, **collaborators
        ),
    ):
        with pytest.raises(NotFound):
            attempt()


# ---- the lease


def test_a_run_is_claimed_by_one(clinic: Clinic) -> None:
    series = clinic.ct()
    asked = {clinic.ask(series).id for _ in range(3)}
    claimed = at_once(*[lambda name=name: claim(clinic, f"owner {name}") for name in range(8)])
    assert sorted(run.id for run in claimed if run is not None) == sorted(asked)
    assert claimed.count(None) == 5


def test_the_oldest_waits_least(clinic: Clinic) -> None:
    series = clinic.ct()
    first = clinic.ask(series)
    clinic.clock.advance(1)
    clinic.ask(series)
    assert claim(clinic, "a").id == first.id


def test_who_lost_the_lease_writes_nothing(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())
    claim(clinic, "slow")
    sink(clinic, run, "slow").append(spoke("first"), parent=None, sampled=True)
    assert claim(clinic, "quick") is None
    clinic.clock.advance(61)
    assert claim(clinic, "quick").id == run.id
    for payload in (spoke("late"), RunStopped(reason=StopReason.FAILED)):
        with pytest.raises(LeaseLost):
            sink(clinic, run, "slow").append(payload, parent=1, sampled=True)
    sink(clinic, run, "quick").append(spoke("second"), parent=1, sampled=True)
    assert [event.payload.text for event in clinic.events(run.id)] == ["first", "second"]


def test_a_heartbeat_holds_a_run(clinic: Clinic) -> None:
    clinic.ask(clinic.ct())
    claim(clinic, "slow")
    clinic.clock.advance(59)
    runs.hold_runs(["slow"], lease_s=60, store=clinic.store, clock=clinic.clock)
    clinic.clock.advance(59)
    assert claim(clinic, "quick") is None


def test_nothing_is_written_after_the_end(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    with clinic.store.transaction() as tx, pytest.raises(LeaseLost):
        tx.runs.append(run.id, spoke(), owner="any", parent=None, sampled=True, at=clinic.clock())
    runs.cancel_run(clinic.actor, run.id, store=clinic.store)
    assert not clinic.run(run.id).cancel_requested


def test_events_that_are_written_at_once_have_no_gap(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())
    claim(clinic, "one")

    def write() -> list[Any]:
        return [sink(clinic, run, "one").append(spoke(), parent=None, sampled=False) for _ in range(10)]

    assert not [one for one in at_once(*[write] * 6) if isinstance(one, Exception)]
    assert len(clinic.events(run.id)) == clinic.run(run.id).event_count == 60


@on_sqlite
def test_c57_looking_for_work_waits_for_no_writer_and_takes_no_lock(clinic: Clinic) -> None:
    with clinic.store.transaction():  # holds SQLite's one write lock
        started = time.monotonic()
        for _ in range(50):
            assert claim(clinic, "idle") is None
        assert time.monotonic() - started < 5


# ---- lost, stopped, worn out


class Halting(SayPolicy):
    """Says its turns, and something happens before one of them."""

    def __init__(self, *turns: str, before: int, happens: Any) -> None:
        super().__init__(*turns)
        self.before, self.happens = before, happens

    def speak(self, messages: Any, **keywords: Any) -> Utterance:
        if sum(message.role == "assistant" for message in messages) == self.before:
            self.happens(keywords["should_stop"])
        return super().speak(messages, **keywords)


class Killed(BaseException):
    """Stands for kill -9: nothing of the process's own cleans up."""


@pytest.mark.parametrize("turn", [0, 1])
def test_a_run_whose_runner_was_lost_goes_on_from_its_last_event(clinic: Clinic, turn: int) -> None:
    run = clinic.ask(clinic.ct())

    def die(_: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        clinic.runner(Halting(BOX, ANSWER, before=turn, happens=die)).work_one()
    before = clinic.events(run.id)
    assert not clinic.runner().work_one(), "the lease still holds"
    clinic.clock.advance(61)
    assert clinic.runner().work_one()
    assert clinic.kinds(run.id) == WHOLE
    assert clinic.events(run.id)[: len(before)] == before
    with clinic.store.transaction(read_only=True) as tx:
        assert [mask.version for mask in tx.masks.newest_of_series(run.series_id)] == [1]


def test_a_runner_that_stops_in_order_gives_its_run_back_at_once(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())

    def stop(should_stop: Any) -> None:
        stopping.stop()
        with pytest.raises(LeaveRun):
            should_stop()
        should_stop()

    stopping = clinic.runner(Halting(BOX, ANSWER, before=1, happens=stop))
    stopping.work_one()
    given_back = clinic.run(run.id)
    assert (given_back.state, given_back.stop_reason) == (RunState.QUEUED, None)
    assert clinic.kinds(run.id) == WHOLE[:6]
    assert clinic.runner().work_one()
    assert clinic.kinds(run.id) == WHOLE


@on_sqlite
def test_a_run_that_is_given_back_again_and_again_is_not_worn_out(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())
    for _ in range(10):
        claim(clinic, "one")
        runs.release_runs(["one"], store=clinic.store)
    assert clinic.runner().work_one()
    assert clinic.run(run.id).stop_reason is StopReason.ANSWERED


def test_a_run_that_takes_its_runner_down_each_time_is_stopped_by_name(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())
    for attempt in range(runs.MAX_ATTEMPTS):
        assert claim(clinic, f"lost {attempt}") is not None
        clinic.clock.advance(61)
    assert clinic.runner().work_one()
    (stopped,) = clinic.events(run.id)
    assert stopped.payload.reason is StopReason.FAILED
    assert stopped.payload.error_code == "runner_lost"
    assert claim(clinic, "next") is None


@on_sqlite
def test_a_runner_that_is_told_to_stop_in_a_long_call_gives_the_run_back_under_its_feet(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.runner.STOP_GRACE_S", 0.2)
    run, is_in_it, may_go_on = clinic.ask(clinic.ct()), threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        is_in_it.set()
        may_go_on.wait(20)

    runner = clinic.runner(Halting(BOX, ANSWER, before=1, happens=hang))
    serving = threading.Thread(target=runner.serve)
    serving.start()
    assert is_in_it.wait(20)
    runner.stop()
    serving.join(20)
    assert not serving.is_alive()
    assert clinic.run(run.id).state is RunState.QUEUED
    assert clinic.runner().work_one()
    may_go_on.set()
    assert clinic.kinds(run.id) == WHOLE


@on_sqlite
def test_a_database_that_does_not_answer_for_a_moment_ends_no_run(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    from backend.store.runs import Runs

    run = clinic.ask(clinic.ct())
    append, failures = Runs.append, iter([False, False, True])

    def failing(self: Runs, *arguments: Any, **keywords: Any) -> Any:
        if next(failures, False):
            raise OperationalError("statement", {}, Exception("gone"))
        return append(self, *arguments, **keywords)

    monkeypatch.setattr(Runs, "append", failing)
    assert clinic.runner().work_one()
    assert clinic.run(run.id).state is RunState.RUNNING
    clinic.clock.advance(61)
    assert clinic.runner().work_one()
    assert clinic.kinds(run.id) == WHOLE


# ---- cancelling and continuing


def test_a_run_is_cancelled_at_its_next_step_and_keeps_what_it_has(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())

    def cancel(_: Any) -> None:
        runs.cancel_run(clinic.actor, run.id, store=clinic.store)
        time.sleep(0.3)

    clinic.runner(Halting(BOX, ANSWER, before=1, happens=cancel)).work_one()
    assert clinic.run(run.id).stop_reason is StopReason.CANCELLED
    assert clinic.kinds(run.id) == [*WHOLE[:6], "RunStopped"]


def test_a_run_that_is_cancelled_while_it_waits_says_no_word(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())
    assert runs.cancel_run(clinic.actor, run.id, store=clinic.store).cancel_requested
    clinic.runner().work_one()
    assert clinic.run(run.id).stop_reason is StopReason.CANCELLED
    assert "ModelSpoke" not in clinic.kinds(run.id)


def go_on(clinic: Clinic, run: Run, sequence: int, correction: Correction | None = None, key: str = "12345678") -> Run:
    return runs.continue_run(
        clinic.actor,
        run.id,
        from_sequence=sequence,
        correction=correction,
        request_key=key,
        store=clinic.store,
        clock=clinic.clock,
    )


def test_a_child_goes_on_from_a_step_with_the_correction_and_the_pictures_of_its_parent(clinic: Clinic) -> None:
    parent = clinic.answered(clinic.ct())
    said = Correction("further left", box=(0, 0, 2, 2))
    child = go_on(clinic, parent, 5, said)
    assert go_on(clinic, parent, 5, said).id == child.id
    policy = SayPolicy(BOX, ANSWER)
    assert clinic.runner(policy).work_one()
    assert clinic.kinds(child.id) == [
        "QuestionAsked",
        "ImageShown",
        "CorrectionGiven",
        "ModelSpoke",
        "AnswerGiven",
        "RunStopped",
    ]
    told = "\n".join(message.text for message in policy.heard[-1])
    assert "further left" in told
    assert "[p5] sam2" in told
    parents, own = (
        runs.picture_of_run(clinic.actor, run, index, store=clinic.store, blobs=clinic.services.blobs)
        for run, index in ((parent.id, 1), (child.id, 2))
    )
    blobs = {"store": clinic.store, "blobs": clinic.services.blobs}
    assert runs.picture_of_run(clinic.actor, child.id, 1, **blobs) == parents
    assert parents != own
    assert own[:4] == b"\x89PNG"
    with pytest.raises(NotFound):
        runs.picture_of_run(clinic.actor, child.id, 3, **blobs)


def test_a_childs_child_has_the_whole_history(clinic: Clinic) -> None:
    parent = clinic.answered(clinic.ct())
    child = go_on(clinic, parent, 5)
    clinic.runner(SayPolicy(BOX, BOX, ANSWER)).work_one()
    (returned,) = of_kind(clinic.events(child.id), "ToolReturned")
    grandchild = go_on(clinic, clinic.run(child.id), returned.sequence, key="87654321")
    history = runs.history_of(clinic.run(grandchild.id), store=clinic.store)
    assert [event.sequence for event in history] == [*range(1, 6), *range(1, returned.sequence + 1)]


@on_sqlite
def test_a_run_goes_on_from_a_finished_step_only(clinic: Clinic, make_actor: Any, make_project: Any) -> None:
    parent = clinic.answered(clinic.ct())
    with pytest.raises(NotJudgeable):
        go_on(clinic, parent, 4)
    with pytest.raises(NotFound):
        go_on(clinic, parent, 99)
    (asked,) = of_kind(clinic.events(parent.id), "QuestionAsked")
    assert isinstance(asked.payload, QuestionAsked)


@on_sqlite
def test_c31_a_correction_names_no_mask_of_another_series(clinic: Clinic) -> None:
    from tests.ingest_files import ct_series

    parent = clinic.answered(clinic.ct())
    (other,) = clinic.take_in(ct_series(2, study="1.9"))
    mask = clinic.begin(other)
    with pytest.raises(NotFound):
        go_on(clinic, parent, 5, Correction(mask_version_id=mask.id))
    for box in ((2, 0, 1, 1), (0, 0, float("nan"), 1), (6, 0, 9, 4), (0, -3, 6, 0)):
        with pytest.raises(InvalidRequest):
            go_on(clinic, parent, 5, Correction(box=box))
    with pytest.raises(InvalidRequest, match="frames 0 to 2"):
        go_on(clinic, parent, 5, Correction(box=(0, 0, 1, 1), frame_index=3))


@on_sqlite
def test_a_correction_lies_on_the_frame_of_its_step_or_the_one_that_is_named(clinic: Clinic) -> None:
    series = clinic.ct()
    turns = (say("go_to_slice", slice=3), BOX, ANSWER)
    parent = clinic.answered(series, policy=SayPolicy(*turns))
    moved, boxed = (event.sequence for event in of_kind(clinic.events(parent.id), "ToolReturned"))
    (answered,) = of_kind(clinic.events(parent.id), "AnswerGiven")

    def frame(sequence: int, key: str, **given: Any) -> int | None:
        child = go_on(clinic, parent, sequence, Correction(**given), key=key)
        assert child.correction is not None
        assert child.correction.given_by == clinic.actor.user_id
        return child.correction.frame_index

    box = (0, 0, 2, 2)
    # The second call names picture 1, of the first slice; the newest picture before it shows the third.
    assert frame(boxed, "boxed 123", box=box) == 0
    assert frame(moved, "moved 123", box=box) == 2
    assert frame(answered.sequence, "answer 12", text="no", box=box) == 0
    assert frame(boxed, "named 123", box=box, frame_index=1) == 1
    mask = clinic.begin(series)
    drawn = masks.save_plane(
        clinic.actor, mask.mask_id, 1, 1, pack_plane(np.ones((4, 6), bool)), base_version=1, request_key="12345678",
        store=clinic.store, clock=clinic.clock,
    )  # fmt: skip
    assert frame(boxed, "mask 1234", mask_version_id=drawn.id) == 1


@on_sqlite
def test_a_persons_mask_is_shown_to_the_model_and_measured(clinic: Clinic) -> None:
    series = clinic.ct()
    parent = clinic.answered(series)
    mask = clinic.begin(series, "Nodule")
    plane = np.zeros((4, 6), bool)
    plane[0, 0:3] = True
    drawn = masks.save_plane(
        clinic.actor, mask.mask_id, 1, 0, pack_plane(plane), base_version=1, request_key="12345678",
        store=clinic.store, clock=clinic.clock,
    )  # fmt: skip
    child = go_on(clinic, parent, 5, Correction("This.", mask_version_id=drawn.id))
    policy = SayPolicy("", say("measure", quantity="area", mask=2), ANSWER)
    assert clinic.runner(policy).work_one()
    assert clinic.run(child.id).stop_reason is StopReason.ANSWERED
    told = "\n".join(message.text for message in policy.heard[-1])
    assert 'The clinician\'s outline is mask 2 "Nodule", slice 1: area 3 px (3.0 mm2), box [0.0, 0.0, 3.0, 1.0]' in told
    (measured,) = of_kind(clinic.events(child.id), "ToolReturned")
    assert (measured.payload.values["area_px"], measured.payload.masks) == (3, ())
    shown = of_kind(clinic.events(child.id), "ImageShown")
    assert [event.payload.mask_version_id for event in shown][-1] == drawn.id
    with clinic.store.transaction(read_only=True) as tx:
        assert tx.masks.get(drawn.id).author.kind is AuthorKind.PERSON


@on_sqlite
def test_time_that_a_run_lay_still_does_not_count(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct(), limits=RunLimits(seconds=30))
    clinic.clock.advance(timedelta(hours=2).total_seconds())
    clinic.runner().work_one()
    assert clinic.run(run.id).stop_reason is StopReason.ANSWERED
