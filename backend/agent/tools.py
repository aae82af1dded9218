"""The tools: a written call becomes a placed one, is carried out, and says its facts as text.

Placing is pure and cheap and raises `ToolError` for whatever the model can mend; it is done again when a run is taken
up after a crash and comes to the same. Every call names a picture of this run by its number, never a path or a URL.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from backend.agent.coordinates import PlacedBox, box_as_written, place_box
from backend.agent.grammar import WrittenCall
from backend.agent.measures import place_measure
from backend.agent.pictures import legal_crop
from backend.agent.prompt_tools import BiomedParse, Sam2
from backend.agent.schemas import (
    ALIASES,
    ARGUMENT_ALIASES,
    ARGUMENTS,
    BiomedParseArguments,
    GoToSliceArguments,
    MeasureArguments,
    Sam2Arguments,
    SetWindowArguments,
    ToolArguments,
    ZoomInArguments,
)
from backend.agent.tool_context import (
    BadArguments,
    NoSuchPicture,
    Outcome,
    PlacedCall,
    ShownPicture,
    ToolContext,
    UnknownTool,
)
from backend.domain.crop import View
from backend.domain.trace import MaskMade
from backend.domain.view import Window


def own_name(written: str) -> str:
    """A tool's own name for the name that a model wrote; the written one where it names none."""
    return ALIASES.get(written, written)


def place(written: WrittenCall, context: ToolContext) -> PlacedCall:
    """Understand a call.

    Raises:
        UnknownTool, BadArguments, NoSuchPicture, UnusablePrompt: The model may try again.
    """
    name = own_name(written.name)
    if name not in ARGUMENTS:
        raise UnknownTool(f"there are the tools {', '.join(ARGUMENTS)}, got {written.name}")
    renamed = ARGUMENT_ALIASES.get(name, {})
    values = {renamed.get(key, key): value for key, value in written.arguments.items()}
    try:
        # Validated as JSON, where a list is a list; `allow_nan` keeps what JSON has no number for from raising here.
        arguments = ARGUMENTS[name].model_validate_json(json.dumps(values))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place_of = ".".join(str(step) for step in wrong["loc"]) or "arguments"
        raise BadArguments(f"{name}: {place_of}: {wrong['msg']}") from None
    return _place(arguments, context)


def _place(arguments: ToolArguments, context: ToolContext) -> PlacedCall:
    match arguments:
        case ZoomInArguments():
            return ZoomIn.place(arguments, context)
        case Sam2Arguments():
            return Sam2.place(arguments, context)
        case BiomedParseArguments():
            return BiomedParse(context.picture(arguments.index), arguments.captions.strip())
        case SetWindowArguments():
            return SetWindow.place(arguments, context)
        case GoToSliceArguments():
            return GoToSlice.place(arguments, context)
        case MeasureArguments():
            return place_measure(arguments, context)
    raise UnknownTool(f"no tool takes {type(arguments).__name__}")


@dataclass(frozen=True, slots=True)
class ZoomIn:
    """A closer look. It makes no mask and hands none on (peers.md 6 b)."""

    name: ClassVar[str] = "zoom_in"
    shown: ShownPicture
    placed: PlacedBox

    @classmethod
    def place(cls, arguments: ZoomInArguments, context: ToolContext) -> Self:
        shown = context.picture(arguments.index)
        return cls(shown, place_box(arguments.bbox_2d, shown.view, context.space))

    @property
    def view_index(self) -> int | None:
        return self.shown.index

    @property
    def was_clamped(self) -> bool:
        return self.placed.was_clamped

    @property
    def recorded(self) -> dict[str, Any]:
        return {"index": self.shown.index, "bbox_2d": list(self.placed.box)}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        view = self.picture(context, ())
        box = box_as_written(view.crop, self.shown.view, context.space)
        asked = self.placed.on_frame(self.shown.view)
        grown = "" if view.crop == asked else " (too small or too thin alone, so shown with what lies around it)"
        shown = "its surroundings" if box is None else f"{list(box)}"
        text = f"Enlarged {shown} of picture {self.shown.index}{grown}."
        return Outcome(text, values={"crop": [float(edge) for edge in view.crop]})

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View:
        view = self.shown.view
        crop = legal_crop(self.placed.on_frame(view), frame_width=view.frame_width, frame_height=view.frame_height)
        # A whole frame is shown in its physical aspect, whatever its pixels' (non-square spacing): so is its crop.
        whole = context.workbench.view_of_frame(view.frame_index)
        width, height = context.limits.enlarged(
            (crop[2] - crop[0]) * whole.width / whole.frame_width,
            (crop[3] - crop[1]) * whole.height / whole.frame_height,
        )
        return replace(view, crop=crop, width=width, height=height)


@dataclass(frozen=True, slots=True)
class SetWindow:
    """The same part of the same slice under another window."""

    name: ClassVar[str] = "set_window"
    was_clamped: ClassVar[bool] = False
    shown: ShownPicture
    window: Window

    @classmethod
    def place(cls, arguments: SetWindowArguments, context: ToolContext) -> Self:
        shown = context.picture(arguments.index)
        if shown.view.window is None:
            raise BadArguments("set_window: a colour picture has no window")
        return cls(shown, Window(arguments.center, arguments.width))

    @property
    def view_index(self) -> int | None:
        return self.shown.index

    @property
    def recorded(self) -> dict[str, Any]:
        return {"index": self.shown.index, "center": self.window.center, "width": self.window.width}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        unit = f" {context.workbench.series.unit}" if context.workbench.series.unit else ""
        return Outcome(f"Window {self.window.center:g} wide {self.window.width:g}{unit} on picture {self.shown.index}.")

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View:
        return replace(self.shown.view, window=self.window)


@dataclass(frozen=True, slots=True)
class GoToSlice:
    """Another slice, whole; a window that was set in this run is kept."""

    name: ClassVar[str] = "go_to_slice"
    view_index: ClassVar[int | None] = None
    was_clamped: ClassVar[bool] = False
    frame_index: int
    newest: View

    @classmethod
    def place(cls, arguments: GoToSliceArguments, context: ToolContext) -> Self:
        slices = context.workbench.series.frame_count
        if arguments.slice > slices:
            raise NoSuchPicture(f"the series has slices 1 to {slices}, got {arguments.slice}")
        return cls(arguments.slice - 1, context.picture(None).view)

    @property
    def recorded(self) -> dict[str, Any]:
        return {"slice": self.frame_index + 1}

    def run(self, context: ToolContext, *, sequence: int) -> Outcome:
        return Outcome(f"Slice {self.frame_index + 1} of {context.workbench.series.frame_count}.")

    def picture(self, context: ToolContext, masks: Sequence[MaskMade]) -> View:
        view = context.limits.shown(context.workbench.view_of_frame(self.frame_index))
        own = context.workbench.view_of_frame(self.newest.frame_index).window
        was_set = view.window is not None and self.newest.window is not None and self.newest.window != own
        return replace(view, window=self.newest.window) if was_set else view
