"""Prompts of a person: a box, points or a name, previewed and then stored or dropped.

A preview is not stored. Accepting one asks the segmenter again, whose embedding is warm, and stores the answer only if
it is the very mask that was seen; so an accept survives a restart of this process and never stores anything unseen.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import structlog

from backend.domain.access import Actor
from backend.domain.errors import Conflict, InvalidRequest, NotFound
from backend.domain.mask import AuthorKind, MaskAuthor, MaskVersion, pack_plane
from backend.domain.segmenter import CanonicalPicture, Prompt, Segmentation
from backend.domain.study import Series
from backend.services import masks
from backend.services.context import Clock, Services
from backend.services.frames import Frames, frame_at
from backend.services.pictures import canonical_picture
from backend.services.studies import OpenedSeries, open_series, series_of_member
from backend.store.repository import Transaction

log = structlog.get_logger(__name__)


class PreviewChanged(Conflict):
    """The segmenter's answer is not the one that was seen; look again before accepting."""

    code = "preview_changed"


@dataclass(frozen=True, slots=True)
class Preview:
    """A segmenter's answer to one prompt, on the frame as shown."""

    segmentation: Segmentation
    packed: bytes
    area_mm2: float | None

    @property
    def bits_sha256(self) -> str:
        """What an accept names the mask by."""
        return hashlib.sha256(self.packed).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """On the wire; `bits` are packed as planes are, in base64."""
        body = self.segmentation.body
        return {
            "bits": base64.b64encode(self.packed).decode(),
            "bits_sha256": self.bits_sha256,
            "score": self.segmentation.score,
            "is_present": self.segmentation.is_present,
            "is_resampled": self.segmentation.is_resampled,
            "area_px": int(self.segmentation.mask.sum()),
            "area_mm2": self.area_mm2,
            "seconds": self.segmentation.seconds,
            "body": {
                "name": body.name,
                "version": body.version,
                "sha256": body.sha256,
                "is_demonstration": body.is_demonstration,
            },
        }


def preview(actor: Actor, series_id: str, frame_index: int, prompt: Prompt, *, services: Services) -> Preview:
    """Ask the segmenter. Raises `ToolError` for a prompt that can be mended, `SegmenterUnavailable` for no answer."""
    with services.store.transaction(read_only=True) as tx:
        opened = open_series(actor, series_id, tx)
    return _ask(opened, frame_index, prompt, services)


def prepare(actor: Actor, series_id: str, frame_index: int, *, services: Services) -> None:
    """Encode a frame ahead of its first prompt."""
    with services.store.transaction(read_only=True) as tx:
        opened = open_series(actor, series_id, tx)
    services.segmenter.prepare(_canonical(opened, frame_index, services))


def accept(
    actor: Actor,
    series_id: str,
    frame_index: int,
    prompt: Prompt,
    *,
    bits_sha256: str,
    label: str,
    onto: tuple[str, int, int] | None,
    request_key: str,
    services: Services,
) -> MaskVersion:
    """Store a previewed mask.

    Args:
        onto: (mask id, segment, base version) of the mask whose plane it replaces; None for a mask of its own.

    Raises:
        PreviewChanged: If the answer, or the series under it, is not the one that was seen.
        NotFound: If the mask is none of this series (casebook C31).
        InvalidRequest: If nothing is set in the mask.
        MaskConflict: If the mask has a newer version than the edit began from.
    """
    with services.store.transaction(read_only=True) as tx:
        opened = open_series(actor, series_id, tx)
        if stored := tx.masks.by_request(series_id, request_key):
            return masks.of_this_request(
                stored, None if onto is None else onto[0], MaskAuthor(AuthorKind.TOOL, "", user_id=actor.user_id)
            )
        if onto is not None and tx.masks.newest(onto[0]).series_id != series_id:
            raise NotFound(f"no mask {onto[0]} on series {series_id}")
    answer = _ask(opened, frame_index, prompt, services)
    if answer.bits_sha256 != bits_sha256:
        raise PreviewChanged("the segmenter answers otherwise than it did for the preview")
    if not answer.segmentation.mask.any():
        raise InvalidRequest("nothing is set in this mask, so there is nothing to store")
    body = answer.segmentation.body
    author = MaskAuthor(AuthorKind.TOOL, f"{body.name} {body.version}", user_id=actor.user_id)
    with services.store.transaction() as tx:
        tx.studies.hold(series_id)
        if tx.studies.head(series_id).digest != opened.head.digest:
            raise PreviewChanged(f"series {series_id} was arranged anew meanwhile")
        store = _Storing(tx, opened.series, frame_index, answer.segmentation, author, request_key, services.clock)
        version = store.as_new(label) if onto is None else store.onto(*onto)
    log.info("prompt_accepted", mask_id=version.mask_id, version=version.version)
    return version


@dataclass(frozen=True, slots=True)
class _Storing:
    """An accepted answer on its way into the store."""

    tx: Transaction
    series: Series
    frame_index: int
    answer: Segmentation
    author: MaskAuthor
    request_key: str
    clock: Clock

    def as_new(self, label: str) -> MaskVersion:
        """A mask of its own."""
        return masks.add_tool_mask(
            self.tx,
            self.series,
            {self.frame_index: self.answer.mask},
            label=label,
            author=self.author,
            is_resampled=self.answer.is_resampled,
            request_key=self.request_key,
            clock=self.clock,
        )

    def onto(self, mask_id: str, segment: int, base_version: int) -> MaskVersion:
        """The next version of a mask."""
        return masks.put_plane(
            self.tx,
            self.series,
            mask_id,
            segment=segment,
            frame_index=self.frame_index,
            plane_as_shown=self.answer.mask,
            base_version=base_version,
            author=self.author,
            is_resampled=self.answer.is_resampled,
            request_key=self.request_key,
            clock=self.clock,
        )


def concepts_of_series(actor: Actor, series_id: str, *, services: Services) -> dict[str, Any]:
    """What is found by name here, and the bodies that answer."""
    with services.store.transaction(read_only=True) as tx:
        series = series_of_member(actor, series_id, tx)
    return {
        "concepts": services.segmenter.concepts(series.modality),
        "bodies": [
            {"name": body.name, "version": body.version, "is_demonstration": body.is_demonstration}
            for body in services.segmenter.bodies()
        ],
    }


def _ask(opened: OpenedSeries, frame_index: int, prompt: Prompt, services: Services) -> Preview:
    answer = services.segmenter.segment(_canonical(opened, frame_index, services), prompt)
    spacing = opened.series.frames[frame_index].spacing_row_column_mm
    area_mm2 = None if spacing is None else int(answer.mask.sum()) * spacing[0] * spacing[1]
    return Preview(answer, pack_plane(answer.mask), area_mm2)


def _canonical(opened: OpenedSeries, frame_index: int, services: Services) -> CanonicalPicture:
    frame_at(opened.series, frame_index)
    frames = Frames(store=services.store, blobs=services.blobs, settings=services.settings)
    return canonical_picture(opened, frame_index, frames=frames)
