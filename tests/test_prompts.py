"""Prompts of a person: what was seen is what is stored, once, on the right series."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backend.agent.segmenter_client import HttpSegmenter
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.mask import AuthorKind, MaskConflict, MaskVersion, unpack_plane
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    Prompt,
    Segmentation,
    SegmenterUnavailable,
    UnknownConcept,
    UnusablePrompt,
)
from backend.domain.study import Series
from backend.services import masks, prompts
from backend.services.context import Services
from backend.services.prompts import PreviewChanged
from backend.store.repository import new_id
from tests.clinic import Clinic, at_once
from tests.fakes import BoxSegmenter
from tests.ingest_files import ct_series

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
FOUR = BoxPrompt((1, 1, 3, 3))


@pytest.fixture
def clinic(store, blobs, settings, clock, actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


class GrowingSegmenter(BoxSegmenter):
    """Answers one pixel more each time."""

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        answer = super().segment(picture, prompt)
        self.prepared.append(picture)
        answer.mask.flat[-len(self.prepared) :] = True
        return answer


def accept(clinic: Clinic, series: Series, seen: str, *, services: Services | None = None, **given: Any) -> MaskVersion:
    fields = {"label": "Nodule", "onto": None, "request_key": new_id(), "prompt": FOUR, **given}
    return prompts.accept(
        clinic.actor,
        series.id,
        1,
        fields.pop("prompt"),
        bits_sha256=seen,
        services=services or clinic.services,
        **fields,
    )


def preview(clinic: Clinic, series: Series, prompt: Prompt = FOUR, **given: Any) -> prompts.Preview:
    return prompts.preview(clinic.actor, series.id, 1, prompt, services=given.get("services", clinic.services))


def test_a_preview_is_seen_and_not_stored_and_accepting_stores_what_was_seen(clinic: Clinic) -> None:
    series = clinic.ct()
    seen = preview(clinic, series)
    assert masks.describe_masks(clinic.actor, series.id, store=clinic.store) == []
    told = seen.to_json()
    assert (told["area_px"], told["area_mm2"], told["is_present"], told["score"]) == (4, 4.0, True, None)
    assert told["body"]["is_demonstration"] is True
    version = accept(clinic, series, seen.bits_sha256)
    assert version.voxels == {1: {1: 4}}
    assert (version.author.kind, version.author.user_id) == (AuthorKind.TOOL, clinic.actor.user_id)
    stored = masks.plane_as_shown(clinic.actor, version.id, 1, 1, store=clinic.store)
    assert stored == seen.packed


@on_sqlite
def test_a_segmenter_that_answers_otherwise_than_it_did_stores_nothing(clinic: Clinic) -> None:
    series = clinic.ct()
    services = replace(clinic.services, segmenter=GrowingSegmenter())
    seen = preview(clinic, series, services=services)
    with pytest.raises(PreviewChanged):
        accept(clinic, series, seen.bits_sha256, services=services)
    assert masks.describe_masks(clinic.actor, series.id, store=clinic.store) == []


def test_c61_the_same_accept_at_once_and_later_without_a_segmenter_is_one_mask(clinic: Clinic) -> None:
    series = clinic.ct()
    seen = preview(clinic, series).bits_sha256
    found = at_once(*[lambda: accept(clinic, series, seen, request_key="the same key").id] * 5)
    assert len(set(found)) == 1
    gone = replace(clinic.services, segmenter=HttpSegmenter("http://127.0.0.1:1", "t"))
    assert accept(clinic, series, seen, request_key="the same key", services=gone).id == found[0]
    assert len(masks.describe_masks(clinic.actor, series.id, store=clinic.store)) == 1


@on_sqlite
def test_a_prompt_becomes_the_next_version_of_a_mask_or_a_conflict(clinic: Clinic) -> None:
    series = clinic.ct()
    base, seen = clinic.begin(series), preview(clinic, series).bits_sha256
    second = accept(clinic, series, seen, onto=(base.mask_id, 1, 1), request_key="the same key")
    assert (second.mask_id, second.version, second.voxels) == (base.mask_id, 2, {1: {1: 4}})
    assert accept(clinic, series, seen, onto=(base.mask_id, 1, 1), request_key="the same key") == second
    with pytest.raises(MaskConflict) as conflict:
        accept(clinic, series, seen, onto=(base.mask_id, 1, 1))
    assert conflict.value.details == {"latest": 2}
    with pytest.raises(NotFound):
        accept(clinic, series, seen, onto=(base.mask_id, 9, 2))
    with pytest.raises(Conflict):
        accept(clinic, series, seen, request_key="the same key")


@on_sqlite
def test_an_answer_of_larger_cells_than_pixels_is_marked_resampled_and_stays_so(clinic: Clinic) -> None:
    class Coarse(BoxSegmenter):
        def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
            return replace(super().segment(picture, prompt), grid=(2, 3))

    series = clinic.ct()
    coarse = replace(clinic.services, segmenter=Coarse())
    seen = preview(clinic, series, services=coarse)
    assert seen.to_json()["is_resampled"] is True
    assert accept(clinic, series, seen.bits_sha256, services=coarse).is_resampled
    base = clinic.begin(series)
    second = accept(clinic, series, seen.bits_sha256, onto=(base.mask_id, 1, 1), services=coarse)
    assert second.is_resampled
    assert accept(clinic, series, seen.bits_sha256, onto=(base.mask_id, 1, 2)).is_resampled
    assert not accept(clinic, series, seen.bits_sha256).is_resampled


@on_sqlite
def test_c31_a_prompt_on_one_series_changes_no_mask_of_another(clinic: Clinic) -> None:
    one = clinic.ct()
    (other,) = clinic.take_in(ct_series(2, study="1.9"))
    base = clinic.begin(other)
    with pytest.raises(NotFound):
        accept(clinic, one, preview(clinic, one).bits_sha256, onto=(base.mask_id, 1, 1))
    assert masks.versions_of_mask(clinic.actor, base.mask_id, store=clinic.store) == [base]


@on_sqlite
def test_a_series_that_was_arranged_anew_meanwhile_takes_no_mask_on_the_wrong_slice(clinic: Clinic) -> None:
    files = list(ct_series(6).items())
    (series,) = clinic.take_in(dict(files[3:]))

    class Interrupted(BoxSegmenter):
        def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
            clinic.take_in(dict(files[:3]))
            return super().segment(picture, prompt)

    seen = preview(clinic, series).bits_sha256
    with pytest.raises(PreviewChanged, match="arranged anew"):
        accept(clinic, series, seen, services=replace(clinic.services, segmenter=Interrupted()))
    assert masks.describe_masks(clinic.actor, series.id, store=clinic.store) == []


@on_sqlite
def test_a_mask_in_which_nothing_is_set_is_not_stored(clinic: Clinic) -> None:
    class Nothing(BoxSegmenter):
        def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
            nothing = np.zeros(picture.pixels.shape[:2], np.bool_)
            return replace(super().segment(picture, prompt), mask=nothing, is_present=False)

    series = clinic.ct()
    services = replace(clinic.services, segmenter=Nothing())
    seen = preview(clinic, series, services=services)
    assert seen.to_json()["is_present"] is False
    with pytest.raises(InvalidRequest):
        accept(clinic, series, seen.bits_sha256, services=services)


@on_sqlite
def test_what_a_segmenter_cannot_do_is_told(clinic: Clinic) -> None:
    series = clinic.ct()
    with pytest.raises(UnusablePrompt):
        preview(clinic, series, BoxPrompt((float("nan"), 0, 1, 1)))
    with pytest.raises(UnknownConcept):
        preview(clinic, series, ConceptPrompt("unicorn"))
    gone = replace(clinic.services, segmenter=HttpSegmenter("http://127.0.0.1:1", "t"))
    for attempt in (
        lambda: preview(clinic, series, services=gone),
        lambda: prompts.prepare(clinic.actor, series.id, 0, services=gone),
        lambda: prompts.concepts_of_series(clinic.actor, series.id, services=gone),
    ):
        with pytest.raises(SegmenterUnavailable):
            attempt()
    with pytest.raises(NotFound):
        prompts.preview(clinic.actor, series.id, 3, FOUR, services=clinic.services)


@on_sqlite
def test_a_prompt_is_on_the_frame_as_shown_and_its_mask_on_the_stored_grid(clinic: Clinic) -> None:
    from tests.factories.images import make_nifti

    (series,) = clinic.take_in({"v.nii": make_nifti(np.zeros((3, 6, 5), np.int16))}, stated_modality="CT")
    version = accept(
        clinic, series, preview(clinic, series, BoxPrompt((0, 0, 2, 1))).bits_sha256, prompt=BoxPrompt((0, 0, 2, 1))
    )
    with clinic.store.transaction(read_only=True) as tx:
        ((k, count),) = version.voxels[1].items()
        stored = unpack_plane(tx.masks.plane(version, 1, k), rows=6, columns=5)
    # RAS: i grows to the right and is shown from right to left, j grows to the front, which is shown on top.
    assert (count, np.argwhere(stored).tolist()) == (2, [[5, 3], [5, 4]])
