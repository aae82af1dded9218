"""The header of one DICOM file as ingest needs it. Source: DICOM PS3.3."""

import math
from typing import Any, BinaryIO

from backend.domain.study import Identity, SpacingSource
from backend.imaging import tags
from backend.imaging.data_set import DataSet, open_data_set
from backend.imaging.elements import Elements
from backend.imaging.functional_groups import FrameFacts, group_facts, spacing_pair, top_level_facts
from backend.imaging.instance import InstanceHeader, hash_key
from backend.imaging.limits import Limits
from backend.imaging.pixel_module import describe_pixels
from backend.imaging.text import decode_text, uid_key

_RT_DOSE, _SLIDE = "1.2.840.10008.5.1.4.1.1.481.2", "1.2.840.10008.5.1.4.1.1.77.1.6"
# Where Pixel Spacing is one at the detector, unless the file says how it was calibrated: PS3.3 10.7.1.1.
_PROJECTIONS = frozenset({"CR", "DX", "MG", "RF", "XA", "IO", "PX", "RG"})
# Rescale Type (PS3.3 C.11.1.1.2) and Units of PET (C.8.9.1.1.3) that name a unit.
_UNITS = {"HU": "HU", "OD": "OD", "MGML": "mg/mL", "BQML": "Bq/mL", "GML": "g/mL", "CNTS": "counts"}


def read_dicom(file: BinaryIO, *, sha256: str, size: int, limits: Limits) -> InstanceHeader:
    """Read a DICOM file, with or without preamble, up to its pixels.

    Raises:
        FileRefused: The subclass that says why.
    """
    data_set = open_data_set(file, size, limits)
    elements = data_set.elements
    modality = elements.text(tags.MODALITY)[:16]
    facts = _facts(data_set, modality, limits)
    charsets = elements.texts(tags.SPECIFIC_CHARACTER_SET)

    def text(tag: int, at_most: int) -> str:
        return decode_text(elements.raw(tag), charsets, at_most=at_most, person_name=tag == tags.PATIENT_NAME)

    facts["description"] = text(tags.SERIES_DESCRIPTION, 200)
    own_key = hash_key(sha256)
    return InstanceHeader(
        format="dicom",
        sop_instance_uid=uid_key(elements.text(tags.SOP_INSTANCE_UID)) or own_key,
        study_key=uid_key(elements.text(tags.STUDY_INSTANCE_UID)) or own_key,
        series_key=uid_key(elements.text(tags.SERIES_INSTANCE_UID)) or own_key,
        modality=modality,
        study_description=text(tags.STUDY_DESCRIPTION, 200),
        series_description=facts["description"],
        series_number=facts["number"],
        identity=Identity(
            patient_name=text(tags.PATIENT_NAME, 400),
            patient_id=text(tags.PATIENT_ID, 100),
            patient_birth_date=text(tags.PATIENT_BIRTH_DATE, 20),
            patient_sex=text(tags.PATIENT_SEX, 20),
            accession_number=text(tags.ACCESSION_NUMBER, 40),
            study_date=text(tags.STUDY_DATE, 20),
        ),
        facts=facts,
    )


def _facts(data_set: DataSet, modality: str, limits: Limits) -> dict[str, Any]:
    """All that `arrange` and `frames` need to know of the instance."""
    elements = data_set.elements
    has_lut = bool(elements.first(tags.MODALITY_LUT_SEQUENCE).raw(tags.LUT_DESCRIPTOR))
    facts = describe_pixels(
        elements, data_set.file, data_set.size, data_set.syntax, has_modality_lut=has_lut, limits=limits
    )
    shared = top_level_facts(elements) | group_facts(elements.first(tags.SHARED_FUNCTIONAL_GROUPS))
    per_frame = [group_facts(item) for item in elements.items(tags.PER_FRAME_FUNCTIONAL_GROUPS)[: facts["frames"]]]
    spacing, source = _calibrated_spacing(elements, modality, shared, per_frame)
    shared["spacing"] = spacing
    rescale_type = shared.pop("rescale_type", None)
    for frame in per_frame:
        rescale_type = frame.pop("rescale_type", rescale_type)
        if has_lut:
            _drop_rescale(frame)
    if has_lut:
        # The table takes the place of slope and intercept (PS3.3 C.11.1); decoding looks the values up in it.
        rescale_type = elements.first(tags.MODALITY_LUT_SEQUENCE).text(tags.MODALITY_LUT_TYPE)
        _drop_rescale(shared)
    return facts | {
        "format": "dicom",
        "modality": modality,
        "number": _integer(elements, tags.SERIES_NUMBER),
        "instance_number": _integer(elements, tags.INSTANCE_NUMBER),
        "frame_of_reference_uid": uid_key(elements.text(tags.FRAME_OF_REFERENCE_UID)) or None,
        "start": data_set.start,
        "deflated_at": data_set.deflated_at,
        "explicit": data_set.encoding.explicit,
        "little": data_set.encoding.little,
        "modality_lut": has_lut,
        "unit": None
        if facts["samples"] == 3
        else _unit(elements, modality, shared | (per_frame[0] if per_frame else {}), rescale_type),
        "spacing_source": str(source),
        "padding": None if has_lut or facts["samples"] != 1 else _padding(elements, signed=facts["pixel"]["signed"]),
        "content": _content(elements, data_set.sop_class),
        "times_ms": _times_ms(elements, facts["frames"]),
        "shared": shared,
        "per_frame": per_frame if len(per_frame) == facts["frames"] else [],
    }


def _drop_rescale(frame: FrameFacts) -> None:
    frame.pop("slope", None)
    frame.pop("intercept", None)


def _calibrated_spacing(
    elements: Elements, modality: str, shared: FrameFacts, per_frame: list[FrameFacts]
) -> tuple[list[float] | None, SpacingSource]:
    """The spacing that all frames share, if any, and what it measures. Source: PS3.3 10.7.1.1, C.8.3.1.1."""
    spacing = shared.get("spacing")
    imager = spacing_pair(elements, tags.IMAGER_PIXEL_SPACING)
    if spacing is None and not any("spacing" in frame for frame in per_frame):
        return (imager, SpacingSource.IMAGER) if imager else (None, SpacingSource.UNKNOWN)
    is_calibrated = bool(elements.text(tags.PIXEL_SPACING_CALIBRATION_TYPE)) or (imager and imager != spacing)
    if modality in _PROJECTIONS and not is_calibrated:
        return spacing, SpacingSource.IMAGER
    return spacing, SpacingSource.PATIENT


def _unit(elements: Elements, modality: str, values: FrameFacts, rescale_type: str | None) -> str | None:
    """The unit of rescaled values; None where the file names none.

    A CT without Rescale Type is in HU: PS3.3 C.8.2.1 wants the attribute wherever it is anything else.
    """
    if modality == "PT":
        return _UNITS.get(elements.text(tags.UNITS).upper())
    if rescale_type:
        return _UNITS.get(rescale_type.upper())
    return "HU" if modality == "CT" and "intercept" in values else None


def _padding(elements: Elements, *, signed: bool) -> list[int] | None:
    """The stored values that are padding, least and greatest. Source: PS3.3 C.7.5.1.1.2."""
    read = elements.signed if signed else elements.unsigned
    value, limit = read(tags.PIXEL_PADDING_VALUE), read(tags.PIXEL_PADDING_RANGE_LIMIT)
    if value is None:
        return None
    return sorted((value, value if limit is None else limit))


def _content(elements: Elements, sop_class: str) -> str | None:
    """What the frames of one object are to each other where that is neither places nor times."""
    if sop_class == _RT_DOSE:
        return "dose"
    if sop_class == _SLIDE:
        return "slide"
    return "mosaic" if "MOSAIC" in elements.texts(tags.IMAGE_TYPE) else None


def _times_ms(elements: Elements, frames: int) -> list[float] | None:
    """When each frame begins, from the first one. Source: PS3.3 C.7.6.5.1.1 and C.7.6.5.1.2."""
    if frames == 1:
        return None
    vector = elements.numbers(tags.FRAME_TIME_VECTOR)
    if len(vector) == frames and all(step >= 0 for step in vector):
        times = [0.0]
        for step in vector[1:]:
            times.append(times[-1] + step)
        return times
    frame_time = elements.number(tags.FRAME_TIME)
    return [number * frame_time for number in range(frames)] if frame_time and frame_time > 0 else None


def _integer(elements: Elements, tag: int) -> int | None:
    """An Integer String; None where absent, no number, or past the 32 bits that the standard gives it."""
    number = elements.number(tag)
    return int(number) if number is not None and math.fabs(number) < 2**31 else None
