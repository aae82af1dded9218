"""What was made on a series stays on the very slices it was made on, whatever arrives later; nothing deletes it."""

import threading
import time
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from backend.domain.mask import pack_plane
from backend.domain.study import Series
from backend.services import masks
from backend.services.studies import list_studies, study_details
from backend.store.repository import new_id
from backend.store.tables import MaskVersionRow, ProjectRow, SeriesRow, StudyRow
from tests.clinic import Clinic
from tests.ingest_files import ct_series

SLICES = ct_series(10)


@pytest.fixture
def clinic(store, blobs, settings, clock, actor) -> Clinic:
    return Clinic(store, blobs, settings, clock, actor)


def slices(first: int, last: int) -> dict[str, bytes]:
    """Slices of one CT by their places: slice k lies at 3 k mm."""
    return dict(list(SLICES.items())[first:last])


def heights(series: Series) -> list[float]:
    return [frame.plane.origin_lps_mm[2] for frame in series.frames if frame.plane]


def painted(clinic: Clinic, series: Series, *frame_indices: int) -> masks.MaskVersion:
    version = clinic.begin(series)
    for at in frame_indices:
        plane = np.zeros((4, 6), bool)
        plane[0, :at] = True
        version = masks.save_plane(
            clinic.actor, version.mask_id, 1, at, pack_plane(plane), base_version=version.version,
            request_key=new_id(), store=clinic.store, clock=clinic.clock,
        )  # fmt: skip
    return version


def test_a_mask_stays_on_its_anatomical_slices_when_more_arrive_below(clinic: Clinic) -> None:
    (series,) = clinic.take_in(slices(5, 10))
    version = painted(clinic, series, 3, 4)
    arranged = clinic.take_in(slices(0, 5))
    new, old = sorted(arranged, key=lambda one: -len(one.frames))
    assert old.id == series.id
    assert heights(old) == [15, 18, 21, 24, 27]
    assert heights(new) == [3.0 * k for k in range(10)]
    assert old.description == "Axial (superseded: more images came later)"
    assert new.description == "Axial"
    (described,) = masks.describe_masks(clinic.actor, old.id, store=clinic.store)
    assert described.version == version
    assert [heights(old)[frame["frame_index"]] for frame in described.facts()["segments"][0]["frames"]] == [24, 27]
    assert masks.describe_masks(clinic.actor, new.id, store=clinic.store) == []


def test_a_superseded_series_is_listed_last_and_its_images_are_counted_once(clinic: Clinic) -> None:
    (series,) = clinic.take_in(slices(5, 10))
    painted(clinic, series, 3)
    clinic.take_in(slices(0, 5))
    details = study_details(clinic.actor, series.study_id, store=clinic.store)
    assert (details.row.series_count, details.row.frame_count) == (1, 10)
    assert details.row.cover_series_id != series.id
    assert [(one.is_superseded, one.frame_count) for one in details.series] == [(False, 10), (True, 5)]
    assert details.series[1].id == series.id
    (row,) = list_studies(clinic.actor, store=clinic.store).studies
    assert row == details.row


def test_a_run_pins_its_series_too_and_goes_on_after_more_arrived(clinic: Clinic) -> None:
    (series,) = clinic.take_in(slices(5, 10))
    run = clinic.answered(series, frame_index=1)
    clinic.take_in(slices(0, 5))
    assert heights(clinic.series(run.series_id)) == [15, 18, 21, 24, 27]
    assert clinic.answered(clinic.series(run.series_id), frame_index=1).stop_reason == "answered"


def test_a_series_that_nobody_worked_on_grows_under_its_id(clinic: Clinic) -> None:
    (series,) = clinic.take_in(slices(5, 10))
    (grown,) = clinic.take_in(slices(0, 5))
    assert (grown.id, len(grown.frames), grown.description) == (series.id, 10, "Axial")


def test_each_arrangement_that_was_worked_on_stays_for_itself(clinic: Clinic) -> None:
    counts = []
    for first, last in ((6, 10), (4, 6), (2, 4), (0, 2)):
        found = clinic.take_in(slices(first, last))
        counts.append(sorted(len(one.frames) for one in found))
        clinic.begin(max(found, key=lambda one: len(one.frames)))
    assert counts == [[4], [4, 6], [4, 6, 8], [4, 6, 8, 10]]


def test_files_that_come_again_make_no_further_series(clinic: Clinic) -> None:
    (series,) = clinic.take_in(slices(5, 10))
    clinic.begin(series)
    first = clinic.take_in(slices(0, 5))
    again = clinic.take_in(slices(0, 10))
    assert [one.id for one in again] == [one.id for one in first]


def test_a_part_whose_frames_stay_is_left_alone_though_another_part_grows(clinic: Clinic) -> None:
    from tests.ingest_files import dicom

    (series,) = clinic.take_in(slices(0, 3))
    version = clinic.begin(series)
    found = clinic.take_in({"scout.dcm": dicom("1.2.7.1", rows=8, columns=8)})
    assert sorted((len(one.frames), one.description) for one in found) == [(1, "Axial"), (3, "Axial")]
    assert series.id in {one.id for one in found}
    assert masks.describe_masks(clinic.actor, series.id, store=clinic.store)[0].version == version


@pytest.mark.parametrize("table", [SeriesRow, StudyRow, ProjectRow])
def test_nothing_is_deleted_under_a_mask(clinic: Clinic, table: Any) -> None:
    (series,) = clinic.take_in(slices(0, 3))
    version = clinic.begin(series)
    row_id = {SeriesRow: series.id, StudyRow: series.study_id, ProjectRow: series.project_id}[table]
    with Session(clinic.store.engine) as session, pytest.raises(IntegrityError):
        session.execute(delete(table).where(table.id == row_id))
    with Session(clinic.store.engine) as session:
        assert session.scalars(select(MaskVersionRow.id)).all() == [version.id]


@pytest.mark.needs("postgres")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_more_images_that_arrive_while_a_mask_begins_wait_for_it(clinic: Clinic) -> None:
    (series,) = clinic.take_in(slices(5, 10))
    with clinic.store.transaction() as tx:
        tx.studies.hold(series.id)
        arriving = threading.Thread(target=lambda: clinic.take_in(slices(0, 5)))
        arriving.start()
        time.sleep(1.0)
        with clinic.store.transaction(read_only=True) as other:
            assert len(other.studies.series(series.id)[1].frames) == 5
        version = masks.MaskVersion(
            new_id(), new_id(), series.id, 1, masks.author_of(clinic.actor), clinic.clock(),
            (masks.Segment(1, "Lung", "#00ff00"),), {1: {}}, is_resampled=False,
        )  # fmt: skip
        tx.masks.add(version, {}, project_id=series.project_id, request_key=new_id())
    arriving.join(30)
    assert heights(clinic.series(series.id)) == [15, 18, 21, 24, 27]
