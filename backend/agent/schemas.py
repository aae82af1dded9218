"""The tools as a policy is told of them: Hermes JSON schemas and the system prompt, rendered from one place.

The argument models here are also what a call is validated against, so what a policy is told and what is accepted
cannot drift apart. SFT, RL and serving use this same text. DESIGN 6.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from backend.agent.grammar import CALL_CLOSES, CALL_OPENS

Coordinates = Literal["pixels", "thousandths"]

Number = Annotated[float, Field(allow_inf_nan=False)]
Index = Annotated[int, Field(ge=1, description="Number of the picture meant, from 1; the newest one if left out")]
BoxOfFour = Annotated[
    list[Number],
    Field(min_length=4, max_length=4, description="[left, top, right, bottom] in {space}, left < right, top < bottom"),
]
Point = Annotated[list[Number], Field(min_length=2, max_length=2)]
Label = Annotated[str, Field(min_length=1, max_length=64, pattern=r"\S", description="What it is, in a word or two")]


class ToolArguments(BaseModel):
    """Strict: a number as text, a truth value as a number, NaN and an unknown field are refused, never guessed at."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ZoomInArguments(ToolArguments):
    """Look closer: the part of a picture inside a box, enlarged, as a new picture."""

    index: Index | None = None
    bbox_2d: BoxOfFour
    label: Label | None = None


class Sam2Arguments(ToolArguments):
    """Outline one structure from a box around it or from points on it, see it drawn, and learn its area."""

    index: Index | None = None
    bbox_2d: BoxOfFour | None = None
    points: Annotated[list[Point], Field(min_length=1, max_length=32, description="[x, y] in {space}")] | None = None
    labels: (
        Annotated[list[Literal[0, 1]], Field(description="For each point, 1: on the structure, 0: not on it")] | None
    ) = None
    label: Label | None = None


class BiomedParseArguments(ToolArguments):
    """Find a structure by its name in the slice of a picture, see it drawn, and learn its regions and its area."""

    index: Index | None = None
    captions: Annotated[
        str, Field(min_length=1, max_length=64, pattern=r"\S", description="The name of one structure, e.g. lungs")
    ]


class SetWindowArguments(ToolArguments):
    """See a picture again under another grey-level window (for CT in HU)."""

    index: Index | None = None
    center: Number
    width: Annotated[float, Field(allow_inf_nan=False, ge=1)]


class GoToSliceArguments(ToolArguments):
    """See another slice of the series, whole."""

    slice: Annotated[int, Field(ge=1, description="Number of the slice, from 1")]


class MeasureArguments(ToolArguments):
    """Measure the area of a mask, the mean and spread of the values in a mask, or the length between two points."""

    quantity: Literal["area", "intensity", "length"]
    mask: Annotated[int, Field(ge=1, description="Number of the mask, for area and intensity")] | None = None
    index: Index | None = None
    points: (
        Annotated[list[Point], Field(min_length=2, max_length=2, description="Two [x, y] in {space}, for length")]
        | None
    ) = None


# The wire's name of each tool and its arguments, in the order in which a policy is told of them.
ARGUMENTS: dict[str, type[ToolArguments]] = {
    "zoom_in": ZoomInArguments,
    "sam2": Sam2Arguments,
    "biomedparse": BiomedParseArguments,
    "set_window": SetWindowArguments,
    "go_to_slice": GoToSliceArguments,
    "measure": MeasureArguments,
}
# What the published methods call them. Source: reference/methods.md 1.2 and 1.9.
ALIASES = {"Zoom-in": "zoom_in", "SAM2": "sam2", "BiomedParse": "biomedparse", "image_zoom_in_tool": "zoom_in"}
# The published environment's name for the points of a SAM2 call. Source: reference/methods.md 1.2.
ARGUMENT_ALIASES = {"sam2": {"clicklist": "points"}}

_SPACES = {"pixels": "pixels of that picture", "thousandths": "thousandths of that picture's width and height"}


def tool_schemas(coordinates: Coordinates) -> list[dict[str, Any]]:
    """The tools as Hermes function schemas, for a policy whose coordinates are these."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": (arguments.__doc__ or "").strip(),
                "parameters": _plain(arguments.model_json_schema(), _SPACES[coordinates]),
            },
        }
        for name, arguments in ARGUMENTS.items()
    ]


def system_prompt(coordinates: Coordinates) -> str:
    """What a policy is told before the question."""
    tools = "\n".join(json.dumps(schema) for schema in tool_schemas(coordinates))
    return _SYSTEM.format(
        tools=tools, space=_SPACES[coordinates], call_opens=CALL_OPENS, call_closes=CALL_CLOSES, braces="{...}"
    )


def _plain(schema: Any, space: str) -> Any:
    """A schema as people write it: no titles, an optional field without its null, the coordinate space filled in."""
    if isinstance(schema, list):
        return [_plain(one, space) for one in schema]
    if not isinstance(schema, dict):
        return schema.replace("{space}", space) if isinstance(schema, str) else schema
    if "anyOf" in schema and {"type": "null"} in schema["anyOf"]:
        rest = [one for one in schema["anyOf"] if one != {"type": "null"}]
        return _plain(rest[0], space)
    dropped = {"additionalProperties", "description"} if "properties" in schema else set()
    plain = {
        key: _plain(value, space)
        for key, value in schema.items()
        if key not in dropped and not (key == "title" and isinstance(value, str))
    }
    return {"type": "object", **plain} if "properties" in schema else plain


_SYSTEM = """\
You answer one question about one series of medical images: look, use tools, look at what they gave back, answer.

# Tools

You may call these functions, one call a turn:
<tools>
{tools}
</tools>

# How to write

First think: <think>what you see, what you need next and why</think>
Then do one thing. Either call a tool:
{call_opens}{{"name": "zoom_in", "arguments": {braces}}}{call_closes}
and stop there: its result comes in the next message and never from you. Or answer:
<answer>the answer, citing the results it rests on like [s7]; where options were given, their letter first</answer>

Pictures are numbered from 1. Coordinates are {space}, (0, 0) at the top left. Each result has a number like [s7].
A result that says "not present" is a result. Doubt what a tool outlines: look at the picture that comes with it, and \
try another box, point or name where it is wrong. Name left and right of the patient only where the picture's edges \
are given. Millimetres exist only where the results give them."""
