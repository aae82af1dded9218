"""Studies, their instances and their series as rows."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from backend.domain.errors import NotFound
from backend.domain.study import FileState, Identity, Series
from backend.domain.view import Window
from backend.store import series_codec
from backend.store.sql import in_pieces, insert, insert_new, storable
from backend.store.tables import (
    DecodedRow,
    IdentityRow,
    InstanceRow,
    MaskVersionRow,
    RunRow,
    SeriesRow,
    StudyRow,
    ThumbnailRow,
    UploadFileRow,
)
from backend.store.worklist import Worklist

# Files whose instance is in the store; a retry of a failed upload finds its instances as duplicates.
IN_THE_STORE = (FileState.STORED, FileState.DUPLICATE)
# Raised when the arrangement of the same instances would come out otherwise: series are then arranged anew.
ARRANGEMENT = 1
# What a reader is told of a series that stays only for the work that was done on it.
SUPERSEDED = " (superseded: more images came later)"


@dataclass(frozen=True, slots=True)
class KnownInstance:
    """A stored object and the hash of its bytes."""

    id: str
    sha256: str


@dataclass(frozen=True, slots=True)
class NewStudy:
    """A study that a file names; made if the project has none of this key."""

    id: str
    study_key: str
    description: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class NewInstance:
    """An object to store. `header` holds the facts that geometry and decoding need."""

    id: str
    study_key: str
    series_key: str
    sop_instance_uid: str
    sha256: str
    size: int
    header: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """A Series as the files name it; one or several of our series come of it."""

    study_id: str
    project_id: str
    series_key: str


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """A stored object: where its bytes are and the facts of its header."""

    id: str
    sha256: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SeriesHead:
    """Enough of a series to say who may see it and whether what is held of it is still true (`digest`)."""

    id: str
    study_id: str
    project_id: str
    series_key: str
    digest: str
    auto_windows: dict[str, Window] | None


@dataclass(frozen=True, slots=True)
class _KnownRow:
    id: str
    part: str
    description: str
    layout: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.layout["digest"])

    @property
    def is_superseded(self) -> bool:
        return bool(self.layout.get("superseded"))


class Studies:
    """Rows of `studies`, `identities`, `instances`, `series`, `decoded` and `thumbnails` within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.worklist = Worklist(session)

    # ---- taking in

    def known_instances(self, project_id: str, sop_instance_uids: Sequence[str]) -> dict[str, KnownInstance]:
        """SOP Instance UID to the stored object, for those that the project has."""
        found: dict[str, KnownInstance] = {}
        for piece in in_pieces(sop_instance_uids):
            query = select(InstanceRow.sop_instance_uid, InstanceRow.id, InstanceRow.sha256).where(
                InstanceRow.project_id == project_id, InstanceRow.sop_instance_uid.in_(piece)
            )
            found |= {uid: KnownInstance(row_id, sha256) for uid, row_id, sha256 in self._session.execute(query)}
        return found

    def add_studies(self, project_id: str, studies: Sequence[NewStudy], *, now: datetime) -> dict[str, str]:
        """Make the studies that are not there yet; returns study key to id for all of them."""
        in_order = sorted(studies, key=lambda study: study.study_key)
        known = self._study_ids(project_id, [study.study_key for study in in_order])
        missing = [study for study in in_order if study.study_key not in known]
        if not missing:
            return known
        rows = [
            {
                "id": study.id,
                "project_id": project_id,
                "study_key": study.study_key,
                "description": storable(study.description, 200),
                "received_at": now,
            }
            for study in missing
        ]
        insert_new(self._session, StudyRow, rows)
        made = self._study_ids(project_id, [study.study_key for study in missing])
        identities = [_identity_values(study) for study in missing if made[study.study_key] == study.id]
        insert_new(self._session, IdentityRow, identities)
        return known | made

    def identities(self, study_ids: Sequence[str]) -> dict[str, Identity]:
        """Study id to whose it is, for every study that is asked for."""
        found: dict[str, Identity] = {}
        for piece in in_pieces(study_ids):
            found |= self.worklist.identities(piece)
        return {study_id: found.get(study_id, Identity()) for study_id in study_ids}

    def _study_ids(self, project_id: str, study_keys: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for piece in in_pieces(study_keys):
            query = select(StudyRow.study_key, StudyRow.id).where(
                StudyRow.project_id == project_id, StudyRow.study_key.in_(piece)
            )
            found |= dict(self._session.execute(query).all())
        return found

    def add_instances(
        self, project_id: str, instances: Sequence[NewInstance], study_ids: Mapping[str, str]
    ) -> dict[str, KnownInstance]:
        """Store objects whose UID is free; returns UID to what is stored now, by this call or by another before it."""
        in_order = sorted(instances, key=lambda instance: instance.sop_instance_uid)
        rows = [
            {
                "id": instance.id,
                "project_id": project_id,
                "study_id": study_ids[instance.study_key],
                "series_key": instance.series_key,
                "sop_instance_uid": instance.sop_instance_uid,
                "sha256": instance.sha256,
                "size": instance.size,
                "header": instance.header,
            }
            for instance in in_order
        ]
        insert_new(self._session, InstanceRow, rows)
        return self.known_instances(project_id, [instance.sop_instance_uid for instance in in_order])

    # ---- arranging

    def series_to_arrange(self, upload_id: str) -> list[SeriesKey]:
        """Series that the upload's files belong to and whose rows do not show all of their instances yet."""
        touched = (
            select(InstanceRow.study_id, InstanceRow.series_key)
            .join(UploadFileRow, UploadFileRow.instance_id == InstanceRow.id)
            .where(UploadFileRow.upload_id == upload_id, UploadFileRow.state.in_(IN_THE_STORE))
            .distinct()
            .subquery()
        )
        counts = (
            select(InstanceRow.study_id, InstanceRow.project_id, InstanceRow.series_key, func.count())
            .join(
                touched,
                (InstanceRow.study_id == touched.c.study_id) & (InstanceRow.series_key == touched.c.series_key),
            )
            .group_by(InstanceRow.study_id, InstanceRow.project_id, InstanceRow.series_key)
            .order_by(InstanceRow.study_id, InstanceRow.series_key)
        )
        shown = select(SeriesRow.study_id, SeriesRow.series_key, SeriesRow.layout["arranged"].as_string()).join(
            touched, (SeriesRow.study_id == touched.c.study_id) & (SeriesRow.series_key == touched.c.series_key)
        )
        arranged = {(study_id, key): mark for study_id, key, mark in self._session.execute(shown)}
        return [
            SeriesKey(study_id, project_id, key)
            for study_id, project_id, key, count in self._session.execute(counts)
            if arranged.get((study_id, key)) != _arranged_mark(count)
        ]

    def instances_to_arrange(self, key: SeriesKey) -> list[tuple[str, dict[str, Any]]]:
        """`(id, facts)` of a series' instances; nobody else arranges this study until the commit."""
        self._session.execute(select(StudyRow.id).where(StudyRow.id == key.study_id).with_for_update(key_share=True))
        query = (
            select(InstanceRow.id, InstanceRow.header)
            .where(InstanceRow.study_id == key.study_id, InstanceRow.series_key == key.series_key)
            .order_by(InstanceRow.id)
        )
        return [(row_id, header) for row_id, header in self._session.execute(query)]

    def put_series(self, key: SeriesKey, parts: Mapping[str, Series], *, instance_count: int) -> None:
        """Make the rows of a series equal its parts; a part keeps its id, and one that is gone goes.

        A row whose content stays is left alone. One whose content changes loses its thumbnail and its own windows;
        but where runs or masks were made on it, it stays as it was seen, and the new arrangement gets a row of its own.
        """
        known, mark = self._rows_of(key), _arranged_mark(instance_count)
        worked_on = self._worked_on([row.id for row in known])
        contents = {part: _series_values(series) for part, series in parts.items()}
        for made in contents.values():
            made["layout"]["arranged"] = mark
        for row in known:
            content = contents.get(row.part)
            if row.is_superseded or (content is not None and content["layout"]["digest"] == row.digest):
                self._change(row.id, layout={**row.layout, "arranged": mark})
                contents.pop(row.part, None)
            elif row.id in worked_on:
                self._supersede(row, mark)
            elif content is None:
                self._session.execute(delete(SeriesRow).where(SeriesRow.id == row.id))
            else:
                self._change(row.id, **content, auto_window=None)
                self._session.execute(delete(ThumbnailRow).where(ThumbnailRow.series_id == row.id))
                del contents[row.part]
        placed = {"study_id": key.study_id, "project_id": key.project_id, "series_key": key.series_key}
        for part, made in contents.items():
            row_of_its_own = {**made, **placed, "id": parts[part].id, "part": part, "auto_window": None}
            insert(self._session, SeriesRow, [row_of_its_own])

    def _rows_of(self, key: SeriesKey) -> list["_KnownRow"]:
        """The rows of a series, locked: who begins a run or a mask on one of them waits, and then sees it."""
        query = (
            select(SeriesRow.part, SeriesRow.id, SeriesRow.description, SeriesRow.layout)
            .where(SeriesRow.study_id == key.study_id, SeriesRow.series_key == key.series_key)
            .order_by(SeriesRow.id)
            .with_for_update()
        )
        return [
            _KnownRow(row_id, part, description, layout)
            for part, row_id, description, layout in self._session.execute(query)
        ]

    def _worked_on(self, series_ids: Sequence[str]) -> set[str]:
        """Those of the series that runs or masks refer to."""
        runs = select(RunRow.series_id).where(RunRow.series_id.in_(series_ids))
        masks = select(MaskVersionRow.series_id).where(MaskVersionRow.series_id.in_(series_ids))
        return set(self._session.scalars(runs.union(masks)))

    def _supersede(self, row: "_KnownRow", mark: str) -> None:
        """Keep a row with its frames as they are, out of the way of the arrangement that takes its part's name."""
        # Its description is part of what readers hold under a digest, so that changes too.
        digest = hashlib.sha256(f"superseded {row.digest}".encode()).hexdigest()[:32]
        self._change(
            row.id,
            part=f"{row.part[:80]}~{digest}",
            description=f"{row.description[: 200 - len(SUPERSEDED)]}{SUPERSEDED}",
            layout={**row.layout, "digest": digest, "arranged": mark, "superseded": True},
        )

    def _change(self, series_id: str, **values: Any) -> None:
        self._session.execute(update(SeriesRow).where(SeriesRow.id == series_id).values(**values))

    def hold(self, series_id: str) -> None:
        """Keep a series from being arranged anew until the commit: what begins a run or a mask on it comes first.

        On SQLite a transaction that writes is alone anyway.
        """
        self._session.execute(select(SeriesRow.id).where(SeriesRow.id == series_id).with_for_update(read=True))

    # ---- showing

    def head(self, series_id: str) -> SeriesHead:
        """Enough of a series to decide. Raises `NotFound`."""
        query = select(
            SeriesRow.study_id,
            SeriesRow.project_id,
            SeriesRow.series_key,
            SeriesRow.layout["digest"].as_string(),
            SeriesRow.auto_window,
        ).where(SeriesRow.id == series_id)
        row = self._session.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"no series {storable(series_id, 24)}")
        study_id, project_id, series_key, digest, auto = row
        windows = None if auto is None else {name: series_codec.decode_window(entry) for name, entry in auto.items()}
        return SeriesHead(series_id, study_id, project_id, series_key, digest, windows)

    def series(self, series_id: str) -> tuple[str, Series]:
        """A whole series with its frames, and the digest of its content. Raises `NotFound`."""
        row = self._session.get(SeriesRow, series_id)
        if row is None:
            raise NotFound(f"no series {storable(series_id, 24)}")
        columns = ("id", "study_id", "project_id", "modality", "description", "number", "kind", "layout", "frames")
        return row.layout["digest"], series_codec.decode({column: getattr(row, column) for column in columns})

    def instances_of(self, head: SeriesHead) -> dict[str, InstanceFacts]:
        """Id to stored object, for the objects that a series is made of."""
        query = select(InstanceRow.id, InstanceRow.sha256, InstanceRow.header).where(
            InstanceRow.study_id == head.study_id, InstanceRow.series_key == head.series_key
        )
        return {row_id: InstanceFacts(row_id, sha256, facts) for row_id, sha256, facts in self._session.execute(query)}

    def set_auto_windows(self, series_id: str, digest: str, windows: Mapping[str, Window]) -> None:
        """Keep the windows made of a series' own values, unless it has changed since it had this digest."""
        self._session.execute(
            update(SeriesRow)
            .where(SeriesRow.id == series_id, SeriesRow.layout["digest"].as_string() == digest)
            .values(auto_window={name: series_codec.encode_window(window) for name, window in windows.items()})
        )

    def decoded(self, instance_id: str, frame_number: int) -> str | None:
        """The blob of a decoded frame, or None where it was not decoded yet."""
        return self._session.scalar(
            select(DecodedRow.sha256).where(
                DecodedRow.instance_id == instance_id, DecodedRow.frame_number == frame_number
            )
        )

    def add_decoded(self, instance_id: str, frame_number: int, sha256: str) -> None:
        """Keep the blob of a decoded frame."""
        row = {"instance_id": instance_id, "frame_number": frame_number, "sha256": sha256}
        insert_new(self._session, DecodedRow, [row])

    def thumbnail(self, series_id: str) -> bytes | None:
        """The JPEG of a series, or None where none was made yet."""
        return self._session.scalar(select(ThumbnailRow.jpeg).where(ThumbnailRow.series_id == series_id))

    def add_thumbnail(self, series_id: str, digest: str, jpeg: bytes) -> None:
        """Keep the JPEG of a series, unless it has changed since it had this digest."""
        if self.head(series_id).digest == digest:
            insert_new(self._session, ThumbnailRow, [{"series_id": series_id, "jpeg": jpeg}])


def _arranged_mark(instance_count: int) -> str:
    return f"{ARRANGEMENT}:{instance_count}"


def _series_values(series: Series) -> dict[str, Any]:
    """The columns of a series' content; `digest` says whether it is the same."""
    layout, frames = series_codec.encode(series)
    columns = {
        "modality": storable(series.modality, 16),
        "description": storable(series.description, 200),
        "number": series.number,
        "kind": series.kind.value,
        "frame_count": len(series.frames),
    }
    layout["digest"] = hashlib.sha256(orjson.dumps([columns, layout, frames])).hexdigest()[:32]
    return {**columns, "layout": layout, "frames": frames}


def _identity_values(study: NewStudy) -> dict[str, str]:
    identity = study.identity
    return {
        "study_id": study.id,
        "patient_name": storable(identity.patient_name, 400),
        "patient_id": storable(identity.patient_id, 100),
        "patient_birth_date": storable(identity.patient_birth_date, 20),
        "patient_sex": storable(identity.patient_sex, 20),
        "accession_number": storable(identity.accession_number, 40),
        "study_date": storable(identity.study_date, 20),
        "source_name": storable(identity.source_name, 1000),
    }
