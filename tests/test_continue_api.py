"""Continuing a run over HTTP: who may correct, and where a correction lies."""

from typing import Any

import pytest

from backend.domain.access import Actor, Role
from backend.main import create_app
from backend.store.repository import new_id
from tests.clinic import Clinic
from tests.fakes import BoxSegmenter
from tests.people import RecordingQueue, signed_in

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def clinic(store: Any, blobs: Any, settings: Any, clock: Any, actor: Actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


def test_whoever_may_not_judge_may_continue_but_not_correct(clinic: Clinic, settings: Any, make_actor: Any) -> None:
    (project_id, *_) = clinic.actor.project_ids
    run = clinic.answered(clinic.ct())
    mask = clinic.begin(clinic.series(run.series_id))
    app = create_app(settings, queue=RecordingQueue(), segmenter=BoxSegmenter())
    corrections = ({"correction": "no"}, {"box": [0, 0, 2, 2]}, {"mask_version_id": mask.id})
    for role, refused in ((Role.ENGINEER, 403), (Role.CLINICIAN, 201)):
        client = signed_in(app, make_actor(role, project_id))

        def go_on(correction: dict[str, Any], client: Any = client) -> tuple[int, str | None]:
            wanted = {"from_sequence": 5, "request_key": new_id(), **correction}
            answer = client.post(f"/api/runs/{run.id}/continue", json=wanted)
            return answer.status_code, answer.json().get("error", {}).get("code")

        assert go_on({})[0] == go_on({"correction": "  "})[0] == 201
        expected = (refused, "not_allowed" if refused == 403 else None)
        assert [go_on(each) for each in corrections] == [expected] * 3


def test_a_correction_over_http_has_the_frame_that_was_named_or_the_steps(clinic: Clinic, settings: Any) -> None:
    run = clinic.answered(clinic.ct(), frame_index=1)
    client = signed_in(create_app(settings, queue=RecordingQueue(), segmenter=BoxSegmenter()), clinic.actor)
    for named, expected in (({}, 1), ({"frame_index": 2}, 2)):
        wanted = {"from_sequence": 5, "request_key": new_id(), "box": [0, 0, 2, 2], **named}
        child = client.post(f"/api/runs/{run.id}/continue", json=wanted).json()
        correction = clinic.run(child["id"]).correction
        assert correction is not None
        assert correction.frame_index == expected
    wrong = {"from_sequence": 5, "request_key": new_id(), "box": [0, 0, 2, 2], "frame_index": 3}
    assert client.post(f"/api/runs/{run.id}/continue", json=wanted | wrong).status_code == 422
