"""The worklist: pages of studies, newest first, without a query for each row."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from backend.domain.errors import NotFound
from backend.domain.study import Identity, StudyRow
from backend.store import tables
from backend.store.sql import contains, storable

PAGE_SIZE = 50
_IDENTITY = tuple(attribute.name for attribute in fields(Identity))


@dataclass(frozen=True, slots=True)
class StudyFilter:
    """Which studies a person asks for.

    Attributes:
        project_ids: Only these projects; None is every project.
        text: Part of the description, or of the patient's name or id where `by_identity`; "" is all.
        modality: Studies with a series of it; "" is all.
    """

    project_ids: Collection[str] | None
    text: str = ""
    modality: str = ""
    by_identity: bool = False


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """One line of a study's list of series; `rows` and `columns` as shown.

    `is_superseded` marks one that stays only for the runs and masks on it: its images are in a newer one too.
    """

    id: str
    modality: str
    description: str
    number: int | None
    kind: str
    kind_reason: str | None
    frame_count: int
    rows: int
    columns: int
    is_superseded: bool


class Worklist:
    """Reads studies for lists."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def page(self, wanted: StudyFilter, *, number: int, with_identity: bool) -> tuple[int, list[StudyRow]]:
        """How many studies match, and page `number`, from 1, of at most 50 of them, newest first."""
        study = tables.StudyRow
        ids = self._matching(select(study.id), wanted).order_by(study.received_at.desc(), study.id.desc())
        first = (number - 1) * PAGE_SIZE
        if wanted.text:
            # A search for words reads every row, so it is made once for both.
            found = self._session.scalars(ids).all()
            return len(found), self._rows(found[first : first + PAGE_SIZE], with_identity=with_identity)
        total = self._session.scalar(self._counting(wanted)) or 0
        chosen = self._session.scalars(ids.limit(PAGE_SIZE).offset(first)).all()
        return total, self._rows(chosen, with_identity=with_identity)

    def _counting(self, wanted: StudyFilter) -> Select[Any]:
        """How many match; of one modality that is told by the index of series alone."""
        if not wanted.modality:
            return self._matching(select(func.count()).select_from(tables.StudyRow), wanted)
        series = tables.SeriesRow
        query = select(func.count(series.study_id.distinct())).where(series.modality == wanted.modality)
        if wanted.project_ids is not None:
            query = query.where(series.project_id.in_(sorted(wanted.project_ids)))
        return query

    def _matching(self, query: Select[Any], wanted: StudyFilter) -> Select[Any]:
        study, identity, series = tables.StudyRow, tables.IdentityRow, tables.SeriesRow
        if wanted.project_ids is not None:
            query = query.where(study.project_id.in_(sorted(wanted.project_ids)))
        if wanted.modality:
            one = select(series.id).where(
                series.modality == wanted.modality,
                series.project_id == study.project_id,
                series.study_id == study.id,
            )
            query = query.where(one.exists())
        if wanted.text:
            said = contains(self._session, study.description, wanted.text)
            if wanted.by_identity:
                named = or_(
                    contains(self._session, identity.patient_name, wanted.text),
                    contains(self._session, identity.patient_id, wanted.text),
                )
                said = or_(said, study.id.in_(select(identity.study_id).where(named)))
            query = query.where(said)
        return query

    def row(self, study_id: str, *, with_identity: bool) -> StudyRow:
        """One study as a line. Raises `NotFound`."""
        rows = self._rows([study_id], with_identity=with_identity)
        if not rows:
            raise NotFound(f"no study {storable(study_id, 24)}")
        return rows[0]

    def series_of(self, study_id: str) -> list[SeriesSummary]:
        """A study's series by number, those without one behind them, superseded ones last."""
        series = tables.SeriesRow
        query = select(
            series.id,
            series.modality,
            series.description,
            series.number,
            series.kind,
            series.frame_count,
            series.layout,
        ).where(series.study_id == study_id)
        found = [
            SeriesSummary(
                id=row_id,
                modality=modality,
                description=description,
                number=number,
                kind=kind,
                kind_reason=layout["kind_reason"],
                frame_count=frame_count,
                rows=layout["pixel"][int(layout["display"][0])],
                columns=layout["pixel"][1 - int(layout["display"][0])],
                is_superseded=bool(layout.get("superseded")),
            )
            for row_id, modality, description, number, kind, frame_count, layout in self._session.execute(query)
        ]
        return sorted(
            found,
            key=lambda one: (one.is_superseded, one.number is None, one.number or 0, -one.frame_count, one.id),
        )

    def _rows(self, study_ids: Sequence[str], *, with_identity: bool) -> list[StudyRow]:
        study = tables.StudyRow
        query = (
            select(study.id, study.project_id, tables.ProjectRow.name, study.description, study.received_at)
            .join(tables.ProjectRow, tables.ProjectRow.id == study.project_id)
            .where(study.id.in_(study_ids))
        )
        found = {row[0]: row for row in self._session.execute(query)}
        identities = self.identities(study_ids) if with_identity else {}
        summaries = self._summaries(study_ids)
        return [
            StudyRow(
                id=study_id,
                project_id=found[study_id][1],
                project_name=found[study_id][2],
                description=found[study_id][3],
                modalities=tuple(sorted({modality for _, modality, _, _ in summaries[study_id] if modality})),
                series_count=len(summaries[study_id]),
                frame_count=sum(frames for _, _, frames, _ in summaries[study_id]),
                received_at=found[study_id][4],
                cover_series_id=_cover(summaries[study_id]),
                identity=identities.get(study_id, Identity()) if with_identity else None,
            )
            for study_id in study_ids
            if study_id in found
        ]

    def identities(self, study_ids: Sequence[str]) -> dict[str, Identity]:
        """Whose the studies are, by id; for who may know."""
        row = tables.IdentityRow
        query = select(row.study_id, *(getattr(row, name) for name in _IDENTITY)).where(row.study_id.in_(study_ids))
        return {study_id: Identity(*values) for study_id, *values in self._session.execute(query)}

    def _summaries(self, study_ids: Sequence[str]) -> dict[str, list[tuple[str, str, int, int | None]]]:
        """What counts of each study's series. A superseded one's images are counted in the one that took its place."""
        series = tables.SeriesRow
        query = select(series.study_id, series.id, series.modality, series.frame_count, series.number).where(
            series.study_id.in_(study_ids), series.layout["superseded"].as_string().is_(None)
        )
        summaries: dict[str, list[tuple[str, str, int, int | None]]] = defaultdict(list)
        for study_id, series_id, modality, frame_count, number in self._session.execute(query):
            summaries[study_id].append((series_id, modality, frame_count, number))
        return summaries


def _cover(series: list[tuple[str, str, int, int | None]]) -> str | None:
    """The series with the most frames stands for the study; of equals the one with the least number."""
    ranked = sorted(series, key=lambda one: (-one[2], one[3] is None, one[3] or 0, one[0]))
    return ranked[0][0] if ranked else None
