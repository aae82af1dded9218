"""Mask versions and their bit planes. A version stores only the planes that it changed."""

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from backend.domain.errors import NotFound
from backend.domain.mask import AuthorKind, MaskAuthor, MaskConflict, MaskVersion, Segment
from backend.store.tables import MaskPlaneRow, MaskVersionRow

PlaneKey = tuple[int, int]


def _version(row: MaskVersionRow) -> MaskVersion:
    author: dict[str, Any] = row.author
    return MaskVersion(
        id=row.id,
        mask_id=row.mask_id,
        series_id=row.series_id,
        version=row.version,
        author=MaskAuthor(kind=AuthorKind(author["kind"]), **{name: author[name] for name in author if name != "kind"}),
        created_at=row.created_at,
        segments=tuple(Segment(**segment) for segment in row.segments),
        voxels={int(number): {int(k): count for k, count in slices.items()} for number, slices in row.voxels.items()},
        is_resampled=row.is_resampled,
    )


class Masks:
    """Repository of masks."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(
        self, version: MaskVersion, planes: dict[PlaneKey, bytes], *, project_id: str, request_key: str
    ) -> MaskVersion:
        """Store a version and the planes that it changed, or find the version that the same request stored.

        Args:
            planes: Packed bits by (segment number, stored slice k).

        Raises:
            MaskConflict: If another request stored a version of this number already.
        """
        author = version.author
        row = MaskVersionRow(
            id=version.id,
            mask_id=version.mask_id,
            series_id=version.series_id,
            project_id=project_id,
            version=version.version,
            author={
                "kind": author.kind,
                "name": author.name,
                "user_id": author.user_id,
                "run_id": author.run_id,
                "sequence": author.sequence,
            },
            segments=[{"number": s.number, "label": s.label, "color": s.color} for s in version.segments],
            voxels={
                str(number): {str(k): count for k, count in slices.items()} for number, slices in version.voxels.items()
            },
            is_resampled=version.is_resampled,
            created_at=version.created_at,
            request_key=request_key,
        )
        try:
            with self._session.begin_nested():
                self._session.add(row)
        except IntegrityError:
            # On PostgreSQL two requests that begin at once meet only here.
            if stored := self.by_request(version.series_id, request_key):
                return stored
            raise MaskConflict(
                f"mask {version.mask_id} has a version {version.version} already",
                latest=self.newest_number(version.mask_id),
            ) from None
        self._session.add_all(
            MaskPlaneRow(mask_id=version.mask_id, segment=segment, slice_index=k, version=version.version, bits=bits)
            for (segment, k), bits in planes.items()
        )
        return version

    def get(self, version_id: str) -> MaskVersion:
        """One version. Raises `NotFound`."""
        row = self._session.get(MaskVersionRow, version_id)
        if row is None:
            raise NotFound(f"no mask version {version_id}")
        return _version(row)

    def by_request(self, series_id: str, request_key: str) -> MaskVersion | None:
        """The version that this request made before."""
        row = self._session.scalar(
            select(MaskVersionRow).where(
                MaskVersionRow.series_id == series_id, MaskVersionRow.request_key == request_key
            )
        )
        return _version(row) if row else None

    def newest(self, mask_id: str) -> MaskVersion:
        """The newest version of a mask. Raises `NotFound`."""
        row = self._session.scalar(
            select(MaskVersionRow)
            .where(MaskVersionRow.mask_id == mask_id)
            .order_by(MaskVersionRow.version.desc())
            .limit(1)
        )
        if row is None:
            raise NotFound(f"no mask {mask_id}")
        return _version(row)

    def newest_number(self, mask_id: str) -> int:
        """The number of the newest version, 0 where there is none."""
        number = self._session.scalar(
            select(MaskVersionRow.version)
            .where(MaskVersionRow.mask_id == mask_id)
            .order_by(MaskVersionRow.version.desc())
            .limit(1)
        )
        return number or 0

    def versions(self, mask_id: str) -> list[MaskVersion]:
        """Every version of a mask, oldest first."""
        rows = self._session.scalars(
            select(MaskVersionRow).where(MaskVersionRow.mask_id == mask_id).order_by(MaskVersionRow.version)
        )
        return [_version(row) for row in rows]

    def newest_of_series(self, series_id: str) -> list[MaskVersion]:
        """The newest version of each mask on a series, in the order the masks were begun."""
        row = MaskVersionRow
        ends = (
            select(row.mask_id, func.max(row.version).label("newest"), func.min(row.created_at).label("begun_at"))
            .where(row.series_id == series_id)
            .group_by(row.mask_id)
            .subquery()
        )
        rows = self._session.scalars(
            select(row)
            .join(ends, (row.mask_id == ends.c.mask_id) & (row.version == ends.c.newest))
            .order_by(ends.c.begun_at, row.mask_id)
        )
        return [_version(each) for each in rows]

    def plane(self, version: MaskVersion, segment: int, k: int) -> bytes | None:
        """The packed bits of one segment on one stored slice as of a version; None where nothing is set."""
        if not version.voxels.get(segment, {}).get(k):
            return None
        return self._session.scalar(
            select(MaskPlaneRow.bits)
            .where(
                MaskPlaneRow.mask_id == version.mask_id,
                MaskPlaneRow.segment == segment,
                MaskPlaneRow.slice_index == k,
                MaskPlaneRow.version <= version.version,
            )
            .order_by(MaskPlaneRow.version.desc())
            .limit(1)
        )
