"""A workbench, an event sink and a policy of our own for tests of the agent."""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from PIL import Image

from backend.agent.pictures import PictureLimits, in_proportion
from backend.agent.policy import Message, SpeakLimits, Utterance
from backend.agent.workbench import GivenMask, RenderedPicture, SeriesFacts, StoredMask
from backend.domain.crop import BoolArray, View, project_to_view, whole_frame
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    PointsPrompt,
    Prompt,
    Segmentation,
    SegmenterBody,
    UnknownConcept,
)
from backend.domain.study import SpacingSource
from backend.domain.trace import Event, MaskMade, Payload, PolicyBody, ToolBody
from backend.domain.view import Window
from backend.domain.volume import EdgeLetters

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class FakeWorkbench:
    """A series held in memory: `values` is (frames, rows, columns) in HU. Masks are kept by their version's id."""

    def __init__(
        self,
        values: np.ndarray,
        *,
        spacing: tuple[float, float] | None = (0.5, 0.5),
        letters: EdgeLetters | None = None,
        spacing_source: SpacingSource = SpacingSource.PATIENT,
        modality: str = "CT",
    ) -> None:
        self.values = values.astype(np.float32)
        self.spacing, self.letters = spacing, letters
        self.series = SeriesFacts("series1", modality, "HU", len(values), spacing_source)
        self.stored: dict[str, tuple[MaskMade, BoolArray]] = {}
        self.bodies: dict[str, ToolBody] = {}
        self.rendered: list[View] = []
        self.render_salt = b""

    def spacing_of_frame(self, frame_index: int) -> tuple[float, float] | None:
        return self.spacing

    def letters_of_frame(self, frame_index: int) -> EdgeLetters | None:
        return self.letters

    def first_view(self) -> View:
        return self.view_of_frame(0)

    def view_of_frame(self, frame_index: int) -> View:
        _, rows, columns = self.values.shape
        view = whole_frame("series1", frame_index, width=columns, height=rows, window=Window(40, 400))
        return in_proportion(view, self.spacing)

    def render(self, view: View, mask: MaskMade | None = None) -> RenderedPicture:
        self.rendered.append(view)
        bright = project_to_view(self.values[view.frame_index] > 0, view).astype(np.uint8) * 200
        if mask is not None:
            bright[project_to_view(self.mask_on_frame(mask), view)] = 255
        file = io.BytesIO()
        Image.fromarray(bright).save(file, "PNG")
        seen = f"{view.crop}{view.window}".encode() + self.render_salt
        return RenderedPicture(file.getvalue(), hashlib.sha256(file.getvalue() + seen).hexdigest())

    def canonical(self, frame_index: int) -> CanonicalPicture:
        values = self.values[frame_index]
        pixels = np.where(values > 0, 200, 20).astype(np.uint8)
        return CanonicalPicture(pixels, values, self.series.modality, "HU", self.spacing)

    def store_mask(
        self,
        frame_mask: BoolArray,
        *,
        frame_index: int,
        label: str,
        body: ToolBody,
        sequence: int,
        score: float | None,
        is_present: bool,
        is_resampled: bool,
    ) -> StoredMask:
        name = f"mask{sequence}"
        if name in self.stored:
            return StoredMask(self.stored[name][0], self.bodies[name])
        self.bodies[name] = body
        return StoredMask(self.keep(name, frame_mask, frame_index, score, is_resampled=is_resampled), body)

    def given_mask(self, mask_version_id: str, *, frame_index: int) -> GivenMask:
        return GivenMask(self.stored[mask_version_id][0], "drawn")

    def keep(
        self, name: str, frame_mask: BoolArray, frame_index: int, score: float | None = None, *, is_resampled=False
    ) -> MaskMade:
        rows, columns = np.nonzero(frame_mask)
        area = int(frame_mask.sum())
        box = None
        if area:
            box = (float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1))
        made = MaskMade(
            mask_version_id=name,
            segment=1,
            frame_index=frame_index,
            area_px=area,
            area_mm2=None if self.spacing is None else area * self.spacing[0] * self.spacing[1],
            box=box,
            score=score,
            is_resampled=is_resampled,
        )
        self.stored[name] = (made, frame_mask.copy())
        return made

    def mask_on_frame(self, made: MaskMade) -> BoolArray:
        return self.stored[made.mask_version_id][1]


@dataclass
class ListSink:
    """Keeps events in a list. `dies_after` makes the process "die" once so many are stored."""

    events: list[Event] = field(default_factory=list)
    previews: list[str] = field(default_factory=list)
    clock: Callable[[], datetime] = lambda: NOON
    dies_after: int | None = None

    def append(self, payload: Payload, *, parent: int | None, sampled: bool) -> Event:
        event = Event(sequence=len(self.events) + 1, at=self.clock(), parent=parent, sampled=sampled, payload=payload)
        # Through JSON and back, as a store would.
        self.events.append(Event.model_validate_json(event.model_dump_json()))
        if self.dies_after == len(self.events):
            raise ProcessDied
        return self.events[-1]

    def preview(self, text: str) -> None:
        self.previews.append(text)

    @property
    def kinds(self) -> list[str]:
        return [event.payload.kind for event in self.events]

    def of(self, kind: str) -> list[Payload]:
        return [event.payload for event in self.events if event.payload.kind == kind]


class ProcessDied(Exception):
    """Stands for kill -9 right after an event was stored."""


class SayPolicy:
    """Says the given turns one after the other, by how many turns were said before; the last one again and again."""

    def __init__(self, *turns: str, coordinates: str = "pixels", pictures: PictureLimits | None = None) -> None:
        self.turns = turns
        self.body = PolicyBody.model_validate({"name": "SayPolicy", "version": "1", "coordinates": coordinates})
        # Frames of tests are small: shown pixel for pixel.
        self.pictures = pictures or PictureLimits(multiple=1, least_side=1, least_pixels=1)
        self.heard: list[Sequence[Message]] = []

    def speak(
        self,
        messages: Sequence[Message],
        *,
        limits: SpeakLimits,
        on_preview: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> Utterance:
        self.heard.append(messages)
        said = sum(message.role == "assistant" for message in messages)
        text = self.turns[min(said, len(self.turns) - 1)]
        on_preview(text)
        return Utterance(text, tokens_used=10, seconds=0.5, was_interrupted=should_stop())


def two_blocks(rows: int = 60, columns: int = 100) -> np.ndarray:
    """One frame at -1000 HU with a block of 20 x 30 px at 50 HU (x 10 to 30) and one of 20 x 15 (x 60 to 80)."""
    values = np.full((1, rows, columns), -1000.0)
    values[0, 10:40, 10:30] = 50
    values[0, 10:25, 60:80] = 50
    return values


def crop_of(view: View, box: tuple[float, float, float, float]) -> View:
    """A crop at its own size, pixel for pixel."""
    return replace(view.zoomed(box, width=1, height=1), width=int(box[2] - box[0]), height=int(box[3] - box[1]))


class BlockSegmenter:
    """Outlines what is above 0 HU: all of it for "lungs", what lies in a box, the block that a point lies on.

    "liver" is refused by its own acceptance test though it has a mask (casebook C49); other names are unknown.
    `fails` is raised by each prompt, as often as it has entries.
    """

    body = SegmenterBody("BlockSegmenter (a test's fake)", "1", None, is_demonstration=True)

    def __init__(self, *, fails: Sequence[Exception] = ()) -> None:
        self.prompts: list[Prompt] = []
        self.fails = list(fails)

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        self.prompts.append(prompt)
        if self.fails:
            raise self.fails.pop(0)
        bright = picture.pixels > 100
        is_present, score = True, 0.9
        match prompt:
            case BoxPrompt(box=(x0, y0, x1, y1)):
                inside = np.zeros_like(bright)
                inside[round(y0) : round(y1), round(x0) : round(x1)] = True
                bright = bright & inside
            case PointsPrompt(points=((x, y), *_)):
                inside = np.zeros_like(bright)
                inside[int(y), int(x)] = True
                bright = bright & inside
            case ConceptPrompt(concept="liver"):
                is_present, score = False, 0.04
            case ConceptPrompt(concept=concept) if concept != "lungs":
                raise UnknownConcept(f"no body here finds {concept!r}.", known=["lungs", "liver"])
        return Segmentation(bright, score, is_present, self.body, seconds=0.01)

    def prepare(self, picture: CanonicalPicture) -> None:
        return None

    def concepts(self, modality: str) -> tuple[str, ...]:
        return ("lungs", "liver")

    def bodies(self) -> tuple[SegmenterBody, ...]:
        return (self.body,)
