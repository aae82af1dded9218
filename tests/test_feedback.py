"""Judgements: what can be judged and when, once for each request, and unseen by others."""

import threading
import time
from typing import Any

import pytest

from backend.domain.access import Role
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.feedback import Feedback, TargetKind, Verdict
from backend.domain.trace import Run, RunStopped, StopReason
from backend.services import reviews, runs
from backend.services.reviews import NotJudgeable
from backend.services.runs import StoredTrace
from tests.clinic import ANSWER, BOX, Clinic, at_once
from tests.fakes_agent import SayPolicy
from tests.ingest_files import ct_series

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
SPOKE, CALLED, RETURNED, SHOWN, ANSWERED = 3, 4, 5, 6, 8


@pytest.fixture
def clinic(store, blobs, settings, clock, actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


def submit(clinic: Clinic, feedback: Feedback, actor: Any = None) -> Feedback:
    return reviews.submit_feedback(actor or clinic.actor, feedback, store=clinic.store, clock=clinic.clock)


def of(clinic: Clinic, run: Run, actor: Any = None) -> list[Feedback]:
    return reviews.feedback_of_run(actor or clinic.actor, run.id, store=clinic.store)


def test_every_target_is_judged_and_the_judgements_come_back_whole(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct(), options=("Yes", "No"))
    mask_id = clinic.events(run.id)[RETURNED - 1].payload.masks[0].mask_version_id
    given = [
        (TargetKind.STEP, Verdict.ACCEPT, {"sequence": SPOKE, "seconds_spent": 2.5}),
        (TargetKind.STEP, Verdict.CORRECT, {"sequence": CALLED, "corrected_box": (1.0, 1.0, 4.0, 3.0)}),
        (TargetKind.ANSWER, Verdict.CORRECT, {"sequence": ANSWERED, "corrected_choice": "B", "corrected_text": "No"}),
        (TargetKind.MASK, Verdict.CORRECT, {"mask_version_id": mask_id, "corrected_mask_version_id": mask_id}),
        (TargetKind.TRACE, Verdict.REJECT, {"comment": "wrong side", "marks": {"reasoning": 0.25}}),
    ]
    submitted = []
    for target, verdict, fields in given:
        submitted.append(submit(clinic, clinic.judgement(run, target, verdict, **fields)))
        clinic.clock.advance(1)
    assert of(clinic, run) == submitted
    assert [feedback.target for feedback in submitted] == [target for target, _, _ in given]
    assert submitted[1].corrected_box == (1.0, 1.0, 4.0, 3.0)


def test_a_change_of_mind_is_newer_feedback(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    for verdict in (Verdict.ACCEPT, Verdict.REJECT):
        submit(clinic, clinic.judgement(run, TargetKind.STEP, verdict, sequence=CALLED))
        clinic.clock.advance(1)
    assert [feedback.verdict for feedback in of(clinic, run)] == [Verdict.ACCEPT, Verdict.REJECT]


def test_c61_the_same_judgement_sent_again_three_times_is_one_row(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    sent = [clinic.judgement(run, TargetKind.TRACE, request_key="the same key") for _ in range(4)]
    first = submit(clinic, sent[0])
    assert [submit(clinic, again) for again in sent[1:]] == [first] * 3
    assert of(clinic, run) == [first]


def test_c61_the_same_judgement_many_times_at_once_is_one_row(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    send = lambda: submit(clinic, clinic.judgement(run, TargetKind.TRACE, request_key="the same key")).id  # noqa: E731
    assert len(set(at_once(*[send] * 8))) == 1
    assert len(of(clinic, run)) == 1


@on_sqlite
def test_c61_a_request_key_of_another_judgement_is_a_conflict(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    submit(clinic, clinic.judgement(run, TargetKind.TRACE, request_key="the same key"))
    with pytest.raises(Conflict, match="another judgement"):
        submit(clinic, clinic.judgement(run, TargetKind.STEP, sequence=CALLED, request_key="the same key"))
    assert len(of(clinic, run)) == 1


def test_another_persons_judgements_are_not_shown(clinic: Clinic, make_actor: Any) -> None:
    run = clinic.answered(clinic.ct())
    second = make_actor(Role.ADJUDICATOR, *clinic.actor.project_ids)
    admin = make_actor(Role.ADMIN, *clinic.actor.project_ids)
    mine = submit(clinic, clinic.judgement(run, TargetKind.TRACE, request_key="the same key"))
    theirs = submit(clinic, clinic.judgement(run, TargetKind.TRACE, Verdict.REJECT, request_key="the same key"), second)
    assert (of(clinic, run), of(clinic, run, second), of(clinic, run, admin)) == ([mine], [theirs], [])


@on_sqlite
def test_a_step_is_judged_once_its_result_is_stored_and_a_trace_once_it_stopped(clinic: Clinic) -> None:
    run = clinic.ask(clinic.ct())
    runs.claim_run(owner="one", lease_s=60, store=clinic.store, clock=clinic.clock)
    sink = StoredTrace(run.id, owner="one", store=clinic.store, notifier=clinic.news, clock=clinic.clock)
    whole = clinic.answered(clinic.ct())
    payloads = [event.payload for event in clinic.events(whole.id)]

    def refused(target: TargetKind, sequence: int | None = None) -> None:
        with pytest.raises(NotJudgeable):
            submit(clinic, clinic.judgement(run, target, sequence=sequence))

    for payload in payloads[:CALLED]:
        sink.append(payload, parent=None, sampled=False)
    refused(TargetKind.STEP, CALLED)
    refused(TargetKind.STEP, ANSWERED)
    refused(TargetKind.TRACE)
    submit(clinic, clinic.judgement(run, TargetKind.STEP, sequence=SPOKE))
    sink.append(payloads[RETURNED - 1], parent=CALLED, sampled=False)
    submit(clinic, clinic.judgement(run, TargetKind.STEP, sequence=CALLED))
    refused(TargetKind.TRACE)
    sink.append(RunStopped(reason=StopReason.CANCELLED), parent=None, sampled=False)
    submit(clinic, clinic.judgement(run, TargetKind.TRACE))
    assert len(of(clinic, run)) == 3


@on_sqlite
@pytest.mark.parametrize(
    ("target", "verdict", "fields"),
    [
        (TargetKind.STEP, Verdict.ACCEPT, {}),
        (TargetKind.STEP, Verdict.ACCEPT, {"sequence": RETURNED}),
        (TargetKind.STEP, Verdict.ACCEPT, {"sequence": SHOWN}),
        (TargetKind.STEP, Verdict.ACCEPT, {"sequence": CALLED, "mask_version_id": "x"}),
        (TargetKind.STEP, Verdict.CORRECT, {"sequence": CALLED}),
        (TargetKind.STEP, Verdict.REJECT, {"sequence": CALLED, "corrected_text": "y"}),
        (TargetKind.STEP, Verdict.CORRECT, {"sequence": CALLED, "corrected_box": (3, 0, 1, 1)}),
        (TargetKind.STEP, Verdict.CORRECT, {"sequence": CALLED, "corrected_box": (0, 0, float("inf"), 1)}),
        (TargetKind.STEP, Verdict.CORRECT, {"sequence": CALLED, "corrected_choice": "A"}),
        (TargetKind.ANSWER, Verdict.ACCEPT, {"sequence": CALLED}),
        (TargetKind.ANSWER, Verdict.CORRECT, {"sequence": ANSWERED, "corrected_choice": "C"}),
        (TargetKind.ANSWER, Verdict.CORRECT, {"sequence": ANSWERED, "corrected_box": (0, 0, 1, 1)}),
        (TargetKind.TRACE, Verdict.ACCEPT, {"sequence": ANSWERED}),
        (TargetKind.TRACE, Verdict.ACCEPT, {"marks": {"reasoning": 1.5}}),
        (TargetKind.TRACE, Verdict.ACCEPT, {"marks": {"reasoning": float("nan")}}),
        (TargetKind.TRACE, Verdict.ACCEPT, {"comment": "a\x00b"}),
        (TargetKind.MASK, Verdict.ACCEPT, {}),
    ],
)
def test_a_judgement_whose_parts_do_not_fit_is_refused(
    clinic: Clinic, target: TargetKind, verdict: Verdict, fields: dict[str, Any]
) -> None:
    run = clinic.answered(clinic.ct(), options=("Yes", "No"))
    with pytest.raises(InvalidRequest):
        submit(clinic, clinic.judgement(run, target, verdict, **fields))
    assert of(clinic, run) == []


@on_sqlite
def test_c31_a_judgement_names_no_mask_of_another_series(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct())
    (other,) = clinic.take_in(ct_series(2, study="1.9"))
    mask = clinic.begin(other)
    for target, fields in (
        (TargetKind.MASK, {"mask_version_id": mask.id}),
        (TargetKind.STEP, {"sequence": CALLED, "verdict": Verdict.CORRECT, "corrected_mask_version_id": mask.id}),
    ):
        verdict = fields.pop("verdict", Verdict.ACCEPT)
        with pytest.raises(NotFound):
            submit(clinic, clinic.judgement(run, target, verdict, **fields))


@on_sqlite
def test_c69_a_stranger_judges_nothing_and_sees_nothing(clinic: Clinic, make_actor: Any, make_project: Any) -> None:
    run = clinic.answered(clinic.ct())
    stranger = make_actor(Role.CLINICIAN, make_project("Other"))
    with pytest.raises(NotFound):
        submit(clinic, clinic.judgement(run, TargetKind.TRACE), stranger)
    with pytest.raises(NotFound):
        of(clinic, run, stranger)


def test_c57_twenty_people_judge_while_a_run_writes_and_nothing_is_lost(clinic: Clinic) -> None:
    judged = clinic.answered(clinic.ct())
    busy = clinic.ask(clinic.ct())
    runs.claim_run(owner="busy", lease_s=600, store=clinic.store, clock=clinic.clock)
    sink = StoredTrace(busy.id, owner="busy", store=clinic.store, notifier=clinic.news, clock=clinic.clock)
    payload = clinic.events(judged.id)[SPOKE - 1].payload
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            sink.append(payload, parent=None, sampled=False)
            time.sleep(0.05)

    def judge() -> int:
        return sum(bool(submit(clinic, clinic.judgement(judged, TargetKind.TRACE))) for _ in range(5))

    writer = threading.Thread(target=write)
    writer.start()
    done = at_once(*[judge] * 20)
    is_over.set()
    writer.join(30)
    assert done == [5] * 20
    assert len(of(clinic, judged)) == 100
    assert len(clinic.events(busy.id)) > 1


@on_sqlite
def test_a_step_that_failed_is_judged_as_well(clinic: Clinic) -> None:
    run = clinic.answered(clinic.ct(), policy=SayPolicy(BOX.replace("sam2", "laser"), ANSWER))
    assert clinic.kinds(run.id)[3:5] == ["ToolCalled", "ToolFailed"]
    assert submit(clinic, clinic.judgement(run, TargetKind.STEP, Verdict.REJECT, sequence=CALLED)).sequence == CALLED
