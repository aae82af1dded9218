"""Masks on a series: begin, edit, rename, restore. Every change is a new version; nothing that was saved is lost.

People see frames as shown and masks are stored on the series' own grid, so every plane passes through the series'
`DisplayOrder` here and nowhere else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import structlog

from backend.domain.access import Actor
from backend.domain.crop import BoolArray, picture_to_stored
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.mask import (
    AuthorKind,
    MaskAuthor,
    MaskConflict,
    MaskVersion,
    Segment,
    pack_plane,
    unpack_plane,
)
from backend.domain.study import Series
from backend.services.context import Clock
from backend.services.studies import hold_series, series_of_member
from backend.store.repository import Store, Transaction, new_id

log = structlog.get_logger(__name__)

_COLOR = re.compile(r"#[0-9a-f]{6}")
LABEL_LENGTH = 64
PALETTE = ("#4cc2ff", "#ff9f6b", "#3ddc97", "#c792ea", "#ffc857", "#ff6b9d", "#7fdbca", "#b8e986")


@dataclass(frozen=True, slots=True)
class DescribedMask:
    """A mask version with what its series says about sizes. Without spacing there are no millimetres."""

    version: MaskVersion
    series: Series

    def facts(self) -> dict[str, Any]:
        """For each segment: pixels and mm2 on each frame as shown, and millilitres where the grid is uniform."""
        return {"segments": [self._segment(segment) for segment in self.version.segments]}

    def _segment(self, segment: Segment) -> dict[str, Any]:
        slices = self.version.voxels[segment.number]
        total = sum(slices.values())
        frames = []
        for k, pixels in slices.items():
            at = self.series.shown_index(k)
            spacing = self.series.frames[at].spacing_row_column_mm
            area_mm2 = None if spacing is None else pixels * spacing[0] * spacing[1]
            frames.append({"frame_index": at, "area_px": pixels, "area_mm2": area_mm2})
        geometry = self.series.geometry
        voxel_mm3 = None if geometry is None else abs(float(np.linalg.det(geometry.affine_kji_to_lps_mm[:3, :3])))
        return {
            "number": segment.number,
            "label": segment.label,
            "color": segment.color,
            "voxels": total,
            "volume_ml": None if voxel_mm3 is None else total * voxel_mm3 / 1000,
            "frames": sorted(frames, key=lambda frame: frame["frame_index"]),
        }


def describe_masks(actor: Actor, series_id: str, *, store: Store) -> list[DescribedMask]:
    """The masks of a series with their sizes."""
    with store.transaction(read_only=True) as tx:
        series = series_of_member(actor, series_id, tx)
        return [DescribedMask(each, series) for each in tx.masks.newest_of_series(series_id) if each.segments]


def describe_version(actor: Actor, version_id: str, *, store: Store) -> DescribedMask:
    """One version with its sizes."""
    with store.transaction(read_only=True) as tx:
        version = tx.masks.get(version_id)
        return DescribedMask(version, series_of_member(actor, version.series_id, tx))


def versions_of_mask(actor: Actor, mask_id: str, *, store: Store) -> list[MaskVersion]:
    """Every version of a mask, oldest first."""
    with store.transaction(read_only=True) as tx:
        versions = tx.masks.versions(mask_id)
        if not versions:
            raise NotFound(f"no mask {mask_id}")
        series_of_member(actor, versions[0].series_id, tx)
        return versions


def plane_as_shown(actor: Actor, version_id: str, segment: int, frame_index: int, *, store: Store) -> bytes:
    """The packed bits of one segment on one frame, as shown."""
    with store.transaction(read_only=True) as tx:
        version = tx.masks.get(version_id)
        series = series_of_member(actor, version.series_id, tx)
        packed = tx.masks.plane(version, segment, stored_slice(series, frame_index))
    return pack_plane(_as_shown(series, packed))


def frame_mask(tx: Transaction, series: Series, version: MaskVersion, segment: int, frame_index: int) -> BoolArray:
    """One segment on one frame, as shown: (rows, columns) of the picture."""
    return _as_shown(series, tx.masks.plane(version, segment, stored_slice(series, frame_index)))


def begin_mask(
    actor: Actor,
    series_id: str,
    *,
    label: str,
    color: str | None = None,
    frame_count: int | None = None,
    request_key: str,
    store: Store,
    clock: Clock,
) -> MaskVersion:
    """An empty mask with one segment, for a person to draw on.

    Raises:
        Conflict: If the request key was used for something else; so do the others here.
        SeriesChanged: If the series has not `frame_count` frames any more.
    """
    with store.transaction() as tx:
        series = hold_series(actor, series_id, tx, frame_count=frame_count)
        if stored := tx.masks.by_request(series_id, request_key):
            return of_this_request(stored, None, author_of(actor))
        segment = Segment(1, checked_label(label), color or next_color(tx, series_id))
        _require_color(segment.color)
        version = MaskVersion(
            new_id(), new_id(), series_id, 1, author_of(actor), clock(), (segment,), {1: {}}, is_resampled=False
        )
        version = _added(tx, version, {}, series, request_key)
    log.info("mask_begun", mask_id=version.mask_id, series_id=series_id)
    return version


def add_tool_mask(
    tx: Transaction,
    series: Series,
    planes_as_shown: Mapping[int, BoolArray],
    *,
    label: str,
    author: MaskAuthor,
    is_resampled: bool,
    request_key: str,
    clock: Clock,
) -> MaskVersion:
    """A mask that a tool made, as version 1 of a mask of its own; the same request again finds it.

    Args:
        planes_as_shown: (rows, columns) by frame index.
    """
    if stored := tx.masks.by_request(series.id, request_key):
        return of_this_request(stored, None, author)
    planes = {stored_slice(series, at): _to_stored(series, plane) for at, plane in planes_as_shown.items()}
    voxels = {k: int(plane.sum()) for k, plane in planes.items() if plane.any()}
    segment = Segment(1, checked_label(label), next_color(tx, series.id))
    version = MaskVersion(new_id(), new_id(), series.id, 1, author, clock(), (segment,), {1: voxels}, is_resampled)
    packed = {(1, k): pack_plane(planes[k]) for k in voxels}
    return _added(tx, version, packed, series, request_key)


def put_plane(
    tx: Transaction,
    series: Series,
    mask_id: str,
    *,
    segment: int,
    frame_index: int,
    plane_as_shown: BoolArray,
    base_version: int,
    author: MaskAuthor,
    is_resampled: bool = False,
    request_key: str,
    clock: Clock,
) -> MaskVersion:
    """The next version of a mask of a series, with one plane of one segment replaced; the same request again finds it.

    Args:
        is_resampled: Of this plane; a mask of which any plane was stays marked.

    Raises:
        MaskConflict: If the mask has a newer version than the edit began from.
    """
    base = tx.masks.newest(mask_id)
    if stored := tx.masks.by_request(series.id, request_key):
        return of_this_request(stored, mask_id, author)
    _require_newest(base, base_version)
    if segment not in base.voxels:
        raise NotFound(f"mask {base.mask_id} has no segment {segment}")
    k, plane = stored_slice(series, frame_index), _to_stored(series, plane_as_shown)
    slices = {at: count for at, count in base.voxels[segment].items() if at != k}
    if plane.any():
        slices[k] = int(plane.sum())
    version = _next(base, author=author, clock=clock, voxels={**base.voxels, segment: dict(sorted(slices.items()))})
    version = replace(version, is_resampled=base.is_resampled or is_resampled)
    return _added(tx, version, {(segment, k): pack_plane(plane)}, series, request_key)


def save_plane(
    actor: Actor,
    mask_id: str,
    segment: int,
    frame_index: int,
    packed: bytes,
    *,
    base_version: int,
    request_key: str,
    store: Store,
    clock: Clock,
) -> MaskVersion:
    """Save one edited plane, as shown.

    Raises:
        MaskConflict: If the mask has a newer version than the edit began from; the editor still has the edit.
        ShapeError: If the bits are not a plane of this series.
    """
    with store.transaction() as tx:
        _, series = _base_for_edit(actor, mask_id, tx)
        rows, columns = shown_size(series)
        return put_plane(
            tx,
            series,
            mask_id,
            segment=segment,
            frame_index=frame_index,
            plane_as_shown=unpack_plane(packed, rows=rows, columns=columns),
            base_version=base_version,
            author=author_of(actor),
            request_key=request_key,
            clock=clock,
        )


def set_segments(
    actor: Actor,
    mask_id: str,
    segments: tuple[Segment, ...],
    *,
    base_version: int,
    request_key: str,
    store: Store,
    clock: Clock,
) -> MaskVersion:
    """Rename, recolour, add or remove segments. A removed one's voxels stay in the earlier versions."""
    if len({segment.number for segment in segments}) != len(segments) or any(s.number < 1 for s in segments):
        raise InvalidRequest("segments have different numbers from 1 on")
    for segment in segments:
        _require_color(segment.color)
    segments = tuple(replace(segment, label=checked_label(segment.label)) for segment in segments)
    with store.transaction() as tx:
        base, series = _base_for_edit(actor, mask_id, tx)
        if stored := tx.masks.by_request(series.id, request_key):
            return of_this_request(stored, mask_id, author_of(actor))
        _require_newest(base, base_version)
        # A number that is used anew begins empty: what had it before is looked up under no slice of this version.
        kept = {segment.number: base.voxels.get(segment.number, {}) for segment in segments}
        version = replace(_next(base, author=author_of(actor), clock=clock, voxels=kept), segments=segments)
        return _added(tx, version, {}, series, request_key)


def restore_version(
    actor: Actor,
    mask_id: str,
    number: int,
    *,
    base_version: int,
    request_key: str,
    store: Store,
    clock: Clock,
) -> MaskVersion:
    """Undo and redo: a new version that equals an earlier one, in segments and in voxels."""
    with store.transaction() as tx:
        base, series = _base_for_edit(actor, mask_id, tx)
        if stored := tx.masks.by_request(series.id, request_key):
            return of_this_request(stored, mask_id, author_of(actor))
        _require_newest(base, base_version)
        wanted = next((version for version in tx.masks.versions(mask_id) if version.version == number), None)
        if wanted is None:
            raise NotFound(f"mask {mask_id} has no version {number}")
        planes: dict[tuple[int, int], bytes] = {}
        for segment in set(wanted.voxels) | set(base.voxels):
            for k in set(wanted.voxels.get(segment, {})) | set(base.voxels.get(segment, {})):
                before, after = tx.masks.plane(base, segment, k), tx.masks.plane(wanted, segment, k)
                if before != after:
                    planes[segment, k] = after or _empty(series)
        version = replace(
            _next(base, author=author_of(actor), clock=clock, voxels=wanted.voxels), segments=wanted.segments
        )
        return _added(tx, version, planes, series, request_key)


def author_of(actor: Actor) -> MaskAuthor:
    """A person as the author of a version."""
    return MaskAuthor(AuthorKind.PERSON, actor.name, user_id=actor.user_id)


def checked_label(label: str) -> str:
    """A segment's name without what would break a list. Raises `InvalidRequest`."""
    cleaned = " ".join(label.split())
    if not 1 <= len(cleaned) <= LABEL_LENGTH or not cleaned.isprintable():
        raise InvalidRequest(f"a segment's name has 1 to {LABEL_LENGTH} printable characters")
    return cleaned


def next_color(tx: Transaction, series_id: str) -> str:
    """A colour that the series' masks use least."""
    used = [segment.color for version in tx.masks.newest_of_series(series_id) for segment in version.segments]
    return min(PALETTE, key=lambda color: (used.count(color), PALETTE.index(color)))


def shown_size(series: Series) -> tuple[int, int]:
    """Rows and columns of a frame as shown."""
    rows, columns = series.pixel.rows, series.pixel.columns
    return (columns, rows) if series.display.transpose else (rows, columns)


def stored_slice(series: Series, frame_index: int) -> int:
    """The stored k of a frame as shown. Raises `NotFound`."""
    if not 0 <= frame_index < len(series.frames):
        raise NotFound(f"series {series.id} has no frame {frame_index}")
    return series.stored_k(frame_index)


def _added(
    tx: Transaction, version: MaskVersion, planes: dict[tuple[int, int], bytes], series: Series, request_key: str
) -> MaskVersion:
    """Store a version. The same request at the same moment may have stored its own, which is then the one."""
    stored = tx.masks.add(version, planes, project_id=series.project_id, request_key=request_key)
    return of_this_request(stored, version.mask_id if version.version > 1 else None, version.author)


def of_this_request(stored: MaskVersion, mask_id: str | None, author: MaskAuthor) -> MaskVersion:
    """What a request key names already, if it is what is asked for now.

    Args:
        mask_id: None for a mask that is begun.
    """
    is_same_mask = stored.version == 1 if mask_id is None else stored.mask_id == mask_id
    if not is_same_mask or _maker(stored.author) != _maker(author):
        raise Conflict("this request key was used for another version")
    return stored


def _maker(author: MaskAuthor) -> tuple[object, ...]:
    return author.user_id, author.run_id, author.sequence


def _base_for_edit(actor: Actor, mask_id: str, tx: Transaction) -> tuple[MaskVersion, Series]:
    base = tx.masks.newest(mask_id)
    return base, series_of_member(actor, base.series_id, tx)


def _require_newest(base: MaskVersion, base_version: int) -> None:
    if base.version != base_version:
        raise MaskConflict(
            f"mask {base.mask_id} is at version {base.version}, the edit began from {base_version}", latest=base.version
        )


def _next(base: MaskVersion, *, author: MaskAuthor, clock: Clock, voxels: dict[int, dict[int, int]]) -> MaskVersion:
    return replace(base, id=new_id(), version=base.version + 1, author=author, created_at=clock(), voxels=voxels)


def _as_shown(series: Series, packed: bytes | None) -> BoolArray:
    rows, columns = series.pixel.rows, series.pixel.columns
    if packed is None:
        return np.zeros(shown_size(series), bool)
    return series.display.frame_to_picture(unpack_plane(packed, rows=rows, columns=columns))


def _to_stored(series: Series, plane_as_shown: BoolArray) -> BoolArray:
    if plane_as_shown.shape != shown_size(series):
        raise InvalidRequest(f"a plane of series {series.id} is {shown_size(series)}, got {plane_as_shown.shape}")
    return np.ascontiguousarray(picture_to_stored(plane_as_shown, series.display))


def _empty(series: Series) -> bytes:
    return pack_plane(np.zeros((series.pixel.rows, series.pixel.columns), bool))


def _require_color(color: str) -> None:
    if not _COLOR.fullmatch(color):
        raise InvalidRequest("a colour is # and six hex digits in lower case")
