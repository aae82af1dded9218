"""What every tool shares: what it may reach, how it fails so that the model may try again, what it gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from backend.agent.pictures import PictureLimits
from backend.agent.schemas import Coordinates
from backend.agent.workbench import Workbench
from backend.domain.crop import View
from backend.domain.segmenter import Segmenter, ToolError
from backend.domain.trace import MaskMade, ToolBody

OWN_BODY = ToolBody(name="Serpens", version="1")


class UnknownTool(ToolError):
    """There is no tool of that name."""

    code = "unknown_tool"


class BadArguments(ToolError):
    """The arguments are not what the tool's schema says."""

    code = "bad_arguments"


class NoSuchPicture(ToolError):
    """The call names a picture, slice or mask that this run does not have."""

    code = "no_such_picture"


class NothingToMeasure(ToolError):
    """What was asked to be measured has no such quantity (no single value in colour, no pixel in the mask)."""

    code = "nothing_to_measure"


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A picture of this run, by its 1-based index."""

    index: int
    view: View


@dataclass(frozen=True, slots=True)
class KnownMask:
    """A mask that a tool made in this run, or that a person gave with a correction, by its 1-based number.

    Attributes:
        is_by_person: No tool made it: it is told and measured, and never counts as the run's own work.
    """

    number: int
    label: str
    made: MaskMade
    is_by_person: bool = False


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may reach: this run's pictures and masks, the series, the segmenter. Nothing else exists for it."""

    workbench: Workbench
    segmenter: Segmenter
    space: Coordinates
    limits: PictureLimits
    shown: Sequence[ShownPicture]
    masks: Sequence[KnownMask]

    def picture(self, index: int | None) -> ShownPicture:
        """The picture that a call names, or the newest. Raises `NoSuchPicture`."""
        if index is not None and not 1 <= index <= len(self.shown):
            raise NoSuchPicture(f"there are pictures 1 to {len(self.shown)}, got {index}")
        return self.shown[-1 if index is None else index - 1]

    def mask(self, number: int | None) -> KnownMask:
        """The mask that a call names, or the newest. Raises `NoSuchPicture`."""
        if not self.masks or (number is not None and not 1 <= number <= len(self.masks)):
            raise NoSuchPicture(f"this run has {count(len(self.masks), 'mask')}, got {number or 'none named'}")
        return self.masks[-1 if number is None else number - 1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool gave back, as `ToolReturned` keeps it."""

    text: str
    body: ToolBody = OWN_BODY
    masks: tuple[MaskMade, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)


class PlacedCall(Protocol):
    """A call that names things that exist. `recorded` has its coordinates in pixels of the view."""

    name: ClassVar[str]

    @property
    def view_index(self) -> int | None: ...

    @property
    def was_clamped(self) -> bool: ...

    @property
    def recorded(self) -> dict[str, Any]: ...

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        """Carry it out; `sequence` is the `ToolReturned` to come."""
        ...

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View | None:
        """The new picture that the result comes with; the same for the same call and masks."""
        ...


def count(number: int, thing: str) -> str:
    """A number of things in words: "1 mask", "2 masks"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
