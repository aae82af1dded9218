"""Who may see which studies, and the worklist."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import TypeAlias

from backend.domain.access import Actor, Permission, Role
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.study import Series, StudyRow
from backend.services.cache import LeastRecentlyUsed
from backend.store.repository import Store, Transaction
from backend.store.studies import InstanceFacts, SeriesHead
from backend.store.worklist import PAGE_SIZE, SeriesSummary, StudyFilter

# Frames are asked for one by one, a thousand of one series: its rows are read once. What is kept never changes, as
# the key holds a digest of its content.
_OPENED_SERIES = 16
_Kept: TypeAlias = tuple[Series, Mapping[str, InstanceFacts]]
_opened: LeastRecentlyUsed[tuple[str, str], _Kept] = LeastRecentlyUsed(_OPENED_SERIES)


class SeriesChanged(Conflict):
    """More images came to a series since it was opened: its frames are not where they were. Open it again."""

    code = "series_changed"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the worklist."""

    number: int
    pages: int
    total: int
    studies: list[StudyRow]


@dataclass(frozen=True, slots=True)
class StudyDetails:
    """A study and the list of its series."""

    row: StudyRow
    series: list[SeriesSummary]


@dataclass(frozen=True, slots=True)
class OpenedSeries:
    """A series that its reader may see, with the stored objects that its frames come from, by id."""

    head: SeriesHead
    series: Series
    instances: Mapping[str, InstanceFacts]


def list_studies(
    actor: Actor, *, store: Store, project_id: str | None = None, text: str = "", modality: str = "", page: int = 1
) -> Page:
    """A page of the studies that a person may see, newest first.

    Args:
        project_id: Only of this project; None is all of theirs.
        text: Part of the description; of the patient's name or id too for who may see identities.
        modality: Studies with a series of it.
        page: From 1; a page past the last one is empty.

    Raises:
        NotFound: If the person is no member of the project.
        InvalidRequest: If `page` is below 1.
    """
    if page < 1:
        raise InvalidRequest(f"pages count from 1, got {page}")
    if project_id is not None and project_id not in actor.project_ids:
        raise NotFound("no such project")
    sees_identity = actor.may(Permission.SEE_IDENTITY)
    everything = actor.role is Role.ADMIN  # their `project_ids` are all there are: no need to name them
    wanted = StudyFilter(
        project_ids=[project_id] if project_id else None if everything else actor.project_ids,
        text=text.strip(),
        modality=modality.strip().upper(),
        by_identity=sees_identity,
    )
    with store.transaction(read_only=True) as tx:
        total, rows = tx.studies.worklist.page(wanted, number=page, with_identity=sees_identity)
    return Page(page, max(1, ceil(total / PAGE_SIZE)), total, rows)


def study_details(actor: Actor, study_id: str, *, store: Store) -> StudyDetails:
    """One study with its series. Raises `NotFound` where there is none in a project of this person."""
    with store.transaction(read_only=True) as tx:
        row = tx.studies.worklist.row(study_id, with_identity=actor.may(Permission.SEE_IDENTITY))
        if row.project_id not in actor.project_ids:
            raise NotFound("no such study")
        return StudyDetails(row, tx.studies.worklist.series_of(study_id))


def open_series(actor: Actor, series_id: str, tx: Transaction) -> OpenedSeries:
    """A series and its objects. Raises `NotFound` where there is none in a project of this person."""
    head = tx.studies.head(series_id)
    if head.project_id not in actor.project_ids:
        raise NotFound("no such series")
    return opened_from(head, tx)


def opened_from(head: SeriesHead, tx: Transaction) -> OpenedSeries:
    """A series whose reader was seen to: by `open_series`, or when the run that reads it was asked for."""
    series_id = head.id
    kept = _opened.get((series_id, head.digest))
    if kept is None:
        digest, series = tx.studies.series(series_id)
        head = replace(head, digest=digest)  # it may have been arranged anew since
        kept = series, tx.studies.instances_of(head)
        _opened.put((series_id, digest), kept)
    return OpenedSeries(head, *kept)


def series_of_member(actor: Actor, series_id: str, tx: Transaction) -> Series:
    """A series. Raises `NotFound` where there is none in a project of this person."""
    return open_series(actor, series_id, tx).series


def hold_series(actor: Actor, series_id: str, tx: Transaction, *, frame_count: int | None = None) -> Series:
    """A series that a run or a mask begins on: until the commit nothing arranges it anew, and later nothing does.

    Args:
        frame_count: How many frames it had when it was opened, where the sender says so.

    Raises:
        NotFound: If there is none in a project of this person.
        SeriesChanged: If it has another number of frames by now.
    """
    tx.studies.hold(series_id)
    series = series_of_member(actor, series_id, tx)
    if frame_count not in (None, len(series.frames)):
        raise SeriesChanged(f"series {series_id} has {len(series.frames)} frames now, it was opened with {frame_count}")
    return series
