"""Masks: versions that never change, planes as shown and as stored, conflicts, undo by going back to a version."""

import zlib
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backend.domain.access import Role
from backend.domain.crop import BoolArray, picture_to_stored
from backend.domain.errors import Conflict, InvalidRequest, NotFound, ShapeError
from backend.domain.mask import AuthorKind, MaskAuthor, MaskConflict, MaskVersion, Segment, pack_plane, unpack_plane
from backend.domain.study import Series
from backend.domain.view import DisplayOrder
from backend.services import masks
from backend.services.studies import SeriesChanged
from backend.store.repository import new_id
from tests.clinic import Clinic, at_once
from tests.factories.images import make_nifti
from tests.ingest_files import ct_series

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ORDERS = [DisplayOrder(*flags) for flags in product([False, True], repeat=4)]


@pytest.fixture
def clinic(store, blobs, settings, clock, actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


def plane_of(series: Series, *places: tuple[int, int]) -> BoolArray:
    """A plane as shown with the (row, column) places set."""
    plane = np.zeros(masks.shown_size(series), bool)
    for row, column in places:
        plane[row, column] = True
    return plane


def save(clinic: Clinic, base: MaskVersion, frame_index: int, plane: BoolArray, **changed: Any) -> MaskVersion:
    given = {"segment": 1, "base_version": base.version, "request_key": new_id(), "actor": clinic.actor, **changed}
    return masks.save_plane(
        given["actor"],
        base.mask_id,
        given["segment"],
        frame_index,
        pack_plane(plane),
        base_version=given["base_version"],
        request_key=given["request_key"],
        store=clinic.store,
        clock=clinic.clock,
    )


def shown(clinic: Clinic, version: MaskVersion, frame_index: int, segment: int = 1) -> BoolArray:
    rows, columns = masks.shown_size(clinic.series(version.series_id))
    packed = masks.plane_as_shown(clinic.actor, version.id, segment, frame_index, store=clinic.store)
    return unpack_plane(packed, rows=rows, columns=columns)


def change(clinic: Clinic, base: MaskVersion, *segments: Segment, **changed: Any) -> MaskVersion:
    return masks.set_segments(
        clinic.actor,
        base.mask_id,
        segments,
        base_version=changed.get("base_version", base.version),
        request_key=changed.get("request_key", new_id()),
        store=clinic.store,
        clock=clinic.clock,
    )


def restore(clinic: Clinic, base: MaskVersion, number: int) -> MaskVersion:
    return masks.restore_version(
        clinic.actor,
        base.mask_id,
        number,
        base_version=base.version,
        request_key=new_id(),
        store=clinic.store,
        clock=clinic.clock,
    )


# ---- planes: packed, shown, stored


def test_a_plane_is_packed_row_by_row_with_the_first_pixel_in_the_highest_bit() -> None:
    plane = np.zeros((2, 6), bool)
    plane[0, 0] = plane[0, 5] = plane[1, 4] = True
    assert zlib.decompress(pack_plane(plane)) == bytes([0b10000100, 0b00100000])


@given(plane=arrays(bool, st.tuples(st.integers(1, 40), st.integers(1, 40))))
@settings(max_examples=60, deadline=None)
def test_packing_loses_nothing(plane: BoolArray) -> None:
    back = unpack_plane(pack_plane(plane), rows=plane.shape[0], columns=plane.shape[1])
    assert np.array_equal(back, plane)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no zlib at all",
        pack_plane(np.ones((4, 7), bool)),
        pack_plane(np.ones((4, 5), bool))[:-1],
        pack_plane(np.ones((4, 6), bool))[:-1],
        pack_plane(np.ones((4, 6), bool))[:-4] + b"\0\0\0\0",
        pack_plane(np.ones((4, 6), bool)) + b"more",
        pack_plane(np.ones((4, 6), bool)) * 2,
        zlib.compress(bytes(200_000_000), 9),
    ],
    ids=["empty", "no zlib", "too wide", "cut", "without its end", "wrong sum", "with more", "twice", "a bomb"],
)
def test_bytes_that_are_not_exactly_one_plane_are_refused(packed: bytes) -> None:
    with pytest.raises(ShapeError):
        unpack_plane(packed, rows=4, columns=6)


@given(
    plane=arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))),
    order=st.sampled_from(ORDERS),
)
@settings(max_examples=120, deadline=None)
def test_a_plane_as_shown_is_stored_and_shown_again_unchanged(plane: BoolArray, order: DisplayOrder) -> None:
    stored = picture_to_stored(plane, order)
    assert np.array_equal(order.frame_to_picture(stored), plane)
    assert np.array_equal(picture_to_stored(order.frame_to_picture(stored), order), stored)


# Axes of a NIfTI to the patient (RAS): as stored, flipped, sagittal and coronal first.
AFFINES = {
    "RAS": np.diag([1.0, 1, 1, 1]),
    "LPS": np.diag([-1.0, -1, 1, 1]),
    "LAI": np.diag([-1.0, 1, -1, 1]),
    "ASR": np.array([[0.0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]),
    "SRA": np.array([[0.0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]]),
    "PIR": np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]]),
}


@on_sqlite
@pytest.mark.parametrize("axes", list(AFFINES))
def test_c29_what_is_painted_over_a_bright_voxel_lies_on_that_voxel_of_the_stored_grid(
    clinic: Clinic, axes: str
) -> None:
    """One bright voxel of a grid of 3 x 4 x 5; it is found on the screen, painted there, and must be the stored one."""
    voxels = np.zeros((3, 4, 5), np.int16)
    voxels[0, 1, 3] = 100
    (series,) = clinic.take_in({"v.nii": make_nifti(voxels, sform=AFFINES[axes])}, stated_modality="CT")
    workbench_frames = [_values(clinic, series, at) for at in range(3)]
    ((at, row, column),) = np.argwhere(np.stack(workbench_frames) == 100)
    saved = save(clinic, clinic.begin(series), int(at), plane_of(series, (row, column)))
    assert saved.voxels == {1: {0: 1}}
    with clinic.store.transaction(read_only=True) as tx:
        stored = unpack_plane(tx.masks.plane(saved, 1, 0), rows=4, columns=5)
    assert np.argwhere(stored).tolist() == [[1, 3]]
    assert np.argwhere(shown(clinic, saved, int(at))).tolist() == [[row, column]]
    assert sum(int(shown(clinic, saved, other).sum()) for other in range(3)) == 1


def _values(clinic: Clinic, series: Series, at: int) -> np.ndarray:
    from backend.services.frames import Frames
    from backend.services.studies import open_series

    with clinic.store.transaction(read_only=True) as tx:
        opened = open_series(clinic.actor, series.id, tx)
    services = clinic.services
    return Frames(store=services.store, blobs=services.blobs, settings=services.settings).shown(opened, at)


@on_sqlite
@pytest.mark.parametrize("axes", ["RAS", "LAI"])
def test_c30_slice_k_has_k_squared_pixels_in_whichever_order_it_is_asked_for(clinic: Clinic, axes: str) -> None:
    (series,) = clinic.take_in({"v.nii": make_nifti(np.zeros((6, 8, 8), np.int16), sform=AFFINES[axes])})
    version = clinic.begin(series)
    for at in range(6):
        plane = np.zeros((8, 8), bool)
        plane[:at, :at] = True
        version = save(clinic, version, at, plane)
    for at in [*range(6), *range(5, -1, -1), 0, 5, 1, 4, 2, 3, 3]:
        assert int(shown(clinic, version, at).sum()) == at * at
    (described,) = masks.describe_masks(clinic.actor, series.id, store=clinic.store)
    frames = described.facts()["segments"][0]["frames"]
    assert [(frame["frame_index"], frame["area_px"]) for frame in frames] == [(at, at * at) for at in range(1, 6)]


@on_sqlite
@pytest.mark.parametrize("axes", ["RAS", "LAI"])
def test_a_mask_on_one_of_several_volumes_lies_on_the_stored_slice_that_was_shown(clinic: Clinic, axes: str) -> None:
    """Two volumes of three slices, each shown from its last slice to its first where the axes say so."""
    voxels = np.zeros((2, 3, 4, 5), np.int16)
    voxels[1, 2, 1, 3] = 100  # the sixth stored slice
    (series,) = clinic.take_in({"v.nii": make_nifti(voxels, sform=AFFINES[axes])}, stated_modality="CT")
    assert series.display.reverse_slices is (axes == "LAI")
    ((at, row, column),) = np.argwhere(np.stack([_values(clinic, series, each) for each in range(6)]) == 100)
    assert at == (3 if axes == "LAI" else 5)
    saved = save(clinic, clinic.begin(series), int(at), plane_of(series, (row, column)))
    assert saved.voxels == {1: {5: 1}}
    with clinic.store.transaction(read_only=True) as tx:
        stored = unpack_plane(tx.masks.plane(saved, 1, 5), rows=4, columns=5)
    assert np.argwhere(stored).tolist() == [[1, 3]]
    assert np.argwhere(shown(clinic, saved, int(at))).tolist() == [[row, column]]
    (described,) = masks.describe_masks(clinic.actor, series.id, store=clinic.store)
    assert [frame["frame_index"] for frame in described.facts()["segments"][0]["frames"]] == [at]


@on_sqlite
def test_sizes_come_with_the_spacing_and_not_without_it(clinic: Clinic) -> None:
    from tests.ingest_files import png

    ct = clinic.ct()
    save(clinic, clinic.begin(ct), 1, plane_of(ct, (0, 0), (0, 1)))
    (on_ct,) = masks.describe_masks(clinic.actor, ct.id, store=clinic.store)
    (segment,) = on_ct.facts()["segments"]
    assert segment["frames"] == [{"frame_index": 1, "area_px": 2, "area_mm2": 2.0}]
    assert (segment["voxels"], segment["volume_ml"]) == (2, pytest.approx(0.006))
    (picture,) = clinic.take_in({"p.png": png()})
    save(clinic, clinic.begin(picture), 0, plane_of(picture, (1, 1)))
    (on_picture,) = masks.describe_masks(clinic.actor, picture.id, store=clinic.store)
    (segment,) = on_picture.facts()["segments"]
    assert segment["frames"] == [{"frame_index": 0, "area_px": 1, "area_mm2": None}]
    assert segment["volume_ml"] is None


# ---- versions


def test_an_edit_is_a_new_version_and_the_earlier_ones_stay(clinic: Clinic) -> None:
    series = clinic.ct()
    first = clinic.begin(series)
    second = save(clinic, first, 1, plane_of(series, (0, 0)))
    third = save(clinic, second, 1, plane_of(series, (3, 5), (2, 2)))
    fourth = save(clinic, third, 1, plane_of(series))
    assert [version.version for version in (first, second, third, fourth)] == [1, 2, 3, 4]
    assert [int(shown(clinic, version, 1).sum()) for version in (first, second, third, fourth)] == [0, 1, 2, 0]
    assert [version.voxels for version in (first, second, third, fourth)] == [
        {1: {}}, {1: {1: 1}}, {1: {1: 2}}, {1: {}},
    ]  # fmt: skip
    assert third.author == MaskAuthor(AuthorKind.PERSON, clinic.actor.name, user_id=clinic.actor.user_id)
    (newest,) = masks.describe_masks(clinic.actor, series.id, store=clinic.store)
    assert newest.version == fourth


def test_c34_five_labels_keep_their_numbers_and_voxels_while_one_is_edited(clinic: Clinic) -> None:
    series = clinic.ct(5)
    five = tuple(Segment(number, f"Label {number}", "#00ff00") for number in range(1, 6))
    version = change(clinic, clinic.begin(series), *five)
    for number in range(1, 6):
        plane = np.zeros((4, 6), bool)
        plane.flat[:number] = True
        version = save(clinic, version, number - 1, plane, segment=number)
    before = version.voxels
    assert before == {number: {number - 1: number} for number in range(1, 6)}
    after = save(clinic, version, 2, np.ones((4, 6), bool), segment=3)
    assert after.voxels == {**before, 3: {2: 24}}
    assert [segment.number for segment in after.segments] == [1, 2, 3, 4, 5]
    for number in (1, 2, 4, 5):
        assert np.array_equal(shown(clinic, after, number - 1, number), shown(clinic, version, number - 1, number))


def test_c33_undo_five_times_and_redo_five_times_over_everything_that_was_done(clinic: Clinic) -> None:
    """Add a segment, paint, rename, accept a tool's mask, delete a segment; then back and forth again."""
    series = clinic.ct()
    lung, nodule = Segment(1, "Lung", "#111111"), Segment(2, "Nodule", "#222222")
    states = [change(clinic, clinic.begin(series), lung)]
    states.append(change(clinic, states[-1], lung, nodule))
    states.append(save(clinic, states[-1], 1, plane_of(series, (0, 0), (1, 1)), segment=2))
    states.append(change(clinic, states[-1], lung, Segment(2, "Tumour", "#333333")))
    with clinic.store.transaction() as tx:
        states.append(
            masks.put_plane(
                tx,
                series,
                states[-1].mask_id,
                segment=1,
                frame_index=0,
                plane_as_shown=plane_of(series, (2, 2)),
                base_version=states[-1].version,
                author=MaskAuthor(AuthorKind.TOOL, "a tool 1", user_id=clinic.actor.user_id),
                request_key=new_id(),
                clock=clinic.clock,
            )
        )
    states.append(change(clinic, states[-1], lung))
    now = states[-1]
    order = [*reversed(states[:-1]), *states[1:]]
    for wanted in order:
        now = restore(clinic, now, wanted.version)
        assert (now.segments, now.voxels) == (wanted.segments, wanted.voxels)
        for segment, at in product((1, 2), range(3)):
            assert np.array_equal(shown(clinic, now, at, segment), shown(clinic, wanted, at, segment))
    versions = masks.versions_of_mask(clinic.actor, now.mask_id, store=clinic.store)
    assert [version.version for version in versions] == list(range(1, 18))


def test_a_number_that_is_used_anew_begins_empty_and_comes_back_with_its_version(clinic: Clinic) -> None:
    series = clinic.ct()
    first = save(clinic, clinic.begin(series), 0, plane_of(series, (0, 0)))
    gone = change(clinic, first)
    assert masks.describe_masks(clinic.actor, series.id, store=clinic.store) == []
    anew = change(clinic, gone, Segment(1, "Other", "#00ff00"))
    assert int(shown(clinic, anew, 0).sum()) == 0
    painted = save(clinic, anew, 1, plane_of(series, (3, 3)))
    assert (int(shown(clinic, painted, 0).sum()), painted.voxels) == (0, {1: {1: 1}})
    back = restore(clinic, painted, first.version)
    assert np.argwhere(shown(clinic, back, 0)).tolist() == [[0, 0]]
    assert int(shown(clinic, back, 1).sum()) == 0
    assert back.segments == first.segments


def test_the_second_of_two_tabs_is_told_and_nothing_of_it_is_stored(clinic: Clinic) -> None:
    series = clinic.ct()
    base = clinic.begin(series)
    first = save(clinic, base, 1, plane_of(series, (0, 0)))
    for attempt in (
        lambda: save(clinic, base, 1, plane_of(series, (3, 3))),
        lambda: change(clinic, base, Segment(1, "Renamed", "#00ff00")),
        lambda: restore(clinic, base, 1),
    ):
        with pytest.raises(MaskConflict) as conflict:
            attempt()
        assert conflict.value.details == {"latest": 2}
    (newest,) = masks.describe_masks(clinic.actor, series.id, store=clinic.store)
    assert newest.version == first


def test_of_many_saves_at_once_on_one_base_one_is_stored(clinic: Clinic) -> None:
    series = clinic.ct()
    base = clinic.begin(series)
    planes = [plane_of(series, (0, column)) for column in range(6)]
    found = at_once(*[lambda plane=plane: save(clinic, base, 1, plane) for plane in planes])
    stored = [one for one in found if isinstance(one, MaskVersion)]
    assert len(stored) == 1
    assert all(isinstance(one, MaskConflict) and one.details == {"latest": 2} for one in found if one not in stored)
    assert int(shown(clinic, stored[0], 1).sum()) == 1


def test_c61_the_same_save_many_times_at_once_is_one_version(clinic: Clinic) -> None:
    series = clinic.ct()
    base = clinic.begin(series)
    found = at_once(*[lambda: save(clinic, base, 1, plane_of(series, (0, 0)), request_key="the same key")] * 6)
    assert {getattr(one, "id", one) for one in found} == {found[0].id}
    later = save(clinic, found[0], 1, plane_of(series, (1, 1)))
    assert save(clinic, base, 1, plane_of(series, (0, 0)), request_key="the same key").id == found[0].id
    assert later.version == 3


def test_c61_the_same_beginning_many_times_at_once_is_one_mask(clinic: Clinic) -> None:
    series = clinic.ct()
    found = at_once(*[lambda: clinic.begin(series, request_key="the same key").mask_id] * 6)
    assert len(set(found)) == 1
    assert len(masks.describe_masks(clinic.actor, series.id, store=clinic.store)) == 1


@on_sqlite
def test_a_request_key_that_was_used_for_something_else_is_a_conflict(clinic: Clinic, make_actor: Any) -> None:
    series = clinic.ct()
    one, other = clinic.begin(series, request_key="the same key"), clinic.begin(series)
    colleague = make_actor(Role.CLINICIAN, *clinic.actor.project_ids)
    for attempt in (
        lambda: save(clinic, other, 0, plane_of(series), request_key="the same key"),
        lambda: save(clinic, one, 0, plane_of(series), request_key="the same key", actor=colleague),
        lambda: clinic.begin(series, request_key="the same key", actor=colleague),
    ):
        with pytest.raises(Conflict):
            attempt()


@on_sqlite
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"frame_index": 3}, NotFound),
        ({"frame_index": -1}, NotFound),
        ({"segment": 2}, NotFound),
        ({"plane": np.ones((6, 4), bool)[:3]}, ShapeError),
        ({"base_version": 0}, MaskConflict),
    ],
)
def test_a_plane_that_does_not_fit_changes_nothing(clinic: Clinic, wrong: dict[str, Any], error: type) -> None:
    series = clinic.ct()
    base = clinic.begin(series)
    given = {"frame_index": 0, "plane": plane_of(series, (0, 0)), **wrong}
    with pytest.raises(error):
        save(clinic, base, given.pop("frame_index"), given.pop("plane"), **given)
    (newest,) = masks.describe_masks(clinic.actor, series.id, store=clinic.store)
    assert newest.version == base


@on_sqlite
@pytest.mark.parametrize(
    "segments",
    [
        (Segment(1, "A", "#00ff00"), Segment(1, "B", "#00ff00")),
        (Segment(0, "A", "#00ff00"),),
        (Segment(1, " ", "#00ff00"),),
        (Segment(1, "x" * 65, "#00ff00"),),
        (Segment(1, "a\u202eb", "#00ff00"),),
        (Segment(1, "A", "green"),),
        (Segment(1, "A", "#00FF00"),),
    ],
)
def test_segments_that_would_break_a_list_are_refused(clinic: Clinic, segments: tuple[Segment, ...]) -> None:
    with pytest.raises(InvalidRequest):
        change(clinic, clinic.begin(clinic.ct()), *segments)


@on_sqlite
def test_masks_begin_in_colours_of_their_own_and_are_listed_as_they_were_begun(clinic: Clinic) -> None:
    series = clinic.ct()
    begun = []
    for _ in range(3):
        begun.append(clinic.begin(series))
        clinic.clock.advance(1)
    save(clinic, begun[0], 0, plane_of(series, (0, 0)))
    found = masks.describe_masks(clinic.actor, series.id, store=clinic.store)
    assert [each.version.mask_id for each in found] == [version.mask_id for version in begun]
    assert [each.version.segments[0].color for each in found] == list(masks.PALETTE[:3])


@on_sqlite
def test_a_mask_on_a_series_that_grew_since_it_was_opened_is_refused(clinic: Clinic) -> None:
    with pytest.raises(SeriesChanged):
        clinic.begin(clinic.ct(3), frame_count=2)


@on_sqlite
def test_c31_no_mask_shows_on_another_series(clinic: Clinic) -> None:
    one = clinic.ct()
    (other,) = clinic.take_in(ct_series(2, study="1.9"))
    clinic.begin(one)
    assert masks.describe_masks(clinic.actor, other.id, store=clinic.store) == []


@on_sqlite
def test_c69_a_stranger_finds_no_mask(clinic: Clinic, make_actor: Any, make_project: Any) -> None:
    series = clinic.ct()
    version = clinic.begin(series)
    stranger = make_actor(Role.CLINICIAN, make_project("Other"))
    for attempt in (
        lambda: masks.describe_masks(stranger, series.id, store=clinic.store),
        lambda: masks.describe_version(stranger, version.id, store=clinic.store),
        lambda: masks.versions_of_mask(stranger, version.mask_id, store=clinic.store),
        lambda: masks.plane_as_shown(stranger, version.id, 1, 0, store=clinic.store),
        lambda: clinic.begin(series, actor=stranger),
        lambda: save(clinic, version, 0, plane_of(series), actor=stranger),
    ):
        with pytest.raises(NotFound):
            attempt()
