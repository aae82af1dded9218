"""One series for its viewer."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from backend.api.deps import CurrentActor, CurrentServices, requires
from backend.domain.access import Permission
from backend.domain.errors import InvalidRequest
from backend.domain.study import Frame
from backend.domain.view import VoiLutFunction, Window
from backend.services import series as showing
from backend.services.context import Services

router = APIRouter(tags=["series"])

_VIEW = [requires(Permission.VIEW_STUDIES)]
_NO_STORE = {"Cache-Control": "no-store"}


@router.get("/api/series/{series_id}", dependencies=_VIEW)
def show_series(series_id: str, actor: CurrentActor, services: CurrentServices) -> dict[str, Any]:
    """What the series is and where each frame lies."""
    return series_json(showing.describe(actor, series_id, **_collaborators(services)))


@router.get("/api/series/{series_id}/frames/{index}", dependencies=_VIEW)
def show_frame(series_id: str, index: int, actor: CurrentActor, services: CurrentServices) -> Response:
    """A frame's stored values as shown: rows x columns x samples, little endian."""
    values = showing.frame_values(actor, series_id, index, **_collaborators(services))
    return Response(values, media_type="application/octet-stream", headers=_NO_STORE)


@router.get("/api/series/{series_id}/frames/{index}/picture", dependencies=_VIEW)
def show_picture(
    series_id: str,
    index: int,
    actor: CurrentActor,
    services: CurrentServices,
    center: float | None = None,
    width: float | None = None,
    function: VoiLutFunction = VoiLutFunction.LINEAR,
    longest_side: Annotated[int | None, Query(ge=16, le=8192)] = None,
) -> Response:
    """A frame as a PNG, by the window asked for or by its own."""
    if (center is None) != (width is None):
        raise InvalidRequest("a window is a center and a width")
    window = None if center is None or width is None else Window(center, width, function)
    png = showing.picture(actor, series_id, index, window=window, longest_side=longest_side, **_collaborators(services))
    return Response(png, media_type="image/png", headers=_NO_STORE)


@router.get("/api/series/{series_id}/thumbnail", dependencies=_VIEW)
def show_thumbnail(series_id: str, actor: CurrentActor, services: CurrentServices) -> Response:
    """A small JPEG of the middle frame."""
    jpeg = showing.thumbnail(actor, series_id, **_collaborators(services))
    return Response(jpeg, media_type="image/jpeg", headers=_NO_STORE)


def _collaborators(services: Services) -> dict[str, Any]:
    return {"store": services.store, "blobs": services.blobs, "settings": services.settings}


def series_json(described: showing.Description) -> dict[str, Any]:
    """A series with its frames; `pixel` is as shown."""
    series = described.series
    sides = (series.pixel.rows, series.pixel.columns)
    rows, columns = reversed(sides) if series.display.transpose else sides
    return {
        "id": series.id,
        "study_id": series.study_id,
        "modality": series.modality,
        "description": series.description,
        "number": series.number,
        "kind": series.kind.value,
        "kind_label": described.kind_label,
        "kind_reason": series.kind_reason,
        "three_d": described.is_three_d,
        "pixel": {
            "rows": rows,
            "columns": columns,
            "samples": series.pixel.samples,
            "dtype": series.pixel.dtype,
            "photometric": series.pixel.photometric.value,
        },
        "unit": series.unit,
        "spacing_source": series.spacing_source.value,
        "windows": [window_json(window) | {"label": window.label} for window in described.windows],
        "presets": [
            {"key": str(place), "label": preset.label, **window_json(preset.window)}
            for place, preset in enumerate(described.presets, 1)
        ],
        "frames": [frame_json(frame, described.window_of(frame)) for frame in series.frames],
    }


def window_json(window: Window) -> dict[str, Any]:
    """A window."""
    return {"center": window.center, "width": window.width, "function": window.function.value}


def frame_json(frame: Frame, window: Window | None) -> dict[str, Any]:
    """A frame: where it lies, and how its values are read. Source of `ipp`, `iop`: DICOM PS3.3 C.7.6.2."""
    values = frame.values
    return {
        "index": frame.index,
        "spacing": None if frame.spacing_row_column_mm is None else list(frame.spacing_row_column_mm),
        "slope": values.slope,
        "intercept": values.intercept,
        "padding": None if values.padding is None else list(values.padding),
        "window": None if window is None else window_json(window),
        "time_ms": frame.time_ms,
        **_plane_json(frame),
    }


def _plane_json(frame: Frame) -> dict[str, Any]:
    plane = frame.plane
    if plane is None:
        return {"ipp": None, "iop": None, "letters": None, "position_mm": None}
    letters = plane.letters
    ipp = plane.origin_lps_mm.tolist()
    row, column = plane.row_direction_lps.tolist(), plane.column_direction_lps.tolist()
    normal = (
        row[1] * column[2] - row[2] * column[1],
        row[2] * column[0] - row[0] * column[2],
        row[0] * column[1] - row[1] * column[0],
    )
    return {
        "ipp": ipp,
        "iop": [*row, *column],
        "letters": {
            "left": letters.left,
            "right": letters.right,
            "top": letters.top,
            "bottom": letters.bottom,
        },
        "position_mm": sum(along * at for along, at in zip(normal, ipp, strict=True)),
    }
