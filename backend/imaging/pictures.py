"""PNG, JPEG and TIFF pictures: photographs, slides, exported X-rays. They carry no place in the patient."""

import struct
import warnings
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from backend.domain.errors import FileTooLarge, TruncatedPixels, UndecodableFrame, UnreadableFile, UnsupportedFile
from backend.domain.study import Identity, Photometric, SpacingSource
from backend.domain.view import DisplayOrder
from backend.imaging.instance import InstanceHeader, hash_key
from backend.imaging.limits import Limits

Array = np.ndarray[Any, np.dtype[Any]]
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_ORIENTATION = 0x0112
_TIFF_PHOTOMETRIC = 262  # 0 is WhiteIsZero: TIFF 6.0 section 4
# Pillow's mode: the mode it is converted to, dtype, samples. Alpha is dropped.
_MODES = {
    "1": ("L", "uint8", 1), "L": ("L", "uint8", 1), "LA": ("L", "uint8", 1), "P": ("RGB", "uint8", 3),
    "PA": ("RGB", "uint8", 3), "RGB": ("RGB", "uint8", 3), "RGBA": ("RGB", "uint8", 3), "RGBX": ("RGB", "uint8", 3),
    "CMYK": ("RGB", "uint8", 3), "YCbCr": ("RGB", "uint8", 3), "I;16": ("I;16", "uint16", 1),
    "I;16B": ("I;16B", "uint16", 1), "I": ("I", "int32", 1), "F": ("F", "float32", 1),
}  # fmt: skip
# EXIF orientation to what is done with the stored picture. Source: EXIF 2.32, 4.6.4 A, tag 274.
_ORDERS = {
    2: DisplayOrder(flip_columns=True),
    3: DisplayOrder(flip_rows=True, flip_columns=True),
    4: DisplayOrder(flip_rows=True),
    5: DisplayOrder(transpose=True),
    6: DisplayOrder(transpose=True, flip_columns=True),
    7: DisplayOrder(transpose=True, flip_rows=True, flip_columns=True),
    8: DisplayOrder(transpose=True, flip_rows=True),
}


def is_picture(head: bytes) -> bool:
    """Whether these first bytes begin a PNG, JPEG or TIFF."""
    return head.startswith(_MAGIC)


def read_picture(file: BinaryIO, *, sha256: str, size: int, stated_modality: str, limits: Limits) -> InstanceHeader:
    """Read a picture. It is decoded once, since nothing but that shows that it is whole.

    Raises:
        FileRefused: The subclass that says why.
    """
    with _opened(file, limits) as image:
        try:
            image.load()
        except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
            raise TruncatedPixels(
                f"the picture does not decode to its {image.width} x {image.height} pixels"
            ) from error
        _, dtype, samples = _MODES[image.mode]
        facts = {
            "format": "picture",
            "modality": stated_modality,
            "description": "",
            "number": None,
            # After load(): Pillow turns a TIFF itself, and a TIFF only.
            "rows": image.height,
            "columns": image.width,
            "samples": samples,
            "dtype": dtype,
            "photometric": str(_photometric(image, samples)),
            "frames": 1,
            "orientation": 1 if image.format == "TIFF" else _exif_orientation(image),
            "spacing_source": str(SpacingSource.UNKNOWN),
        }
    key = hash_key(sha256)
    return InstanceHeader("picture", key, key, key, stated_modality, "", "", None, Identity(), facts)


def picture_order(facts: dict[str, Any]) -> DisplayOrder:
    """How the stored picture is laid on the screen, by its EXIF orientation."""
    return _ORDERS.get(facts["orientation"], DisplayOrder())


def decode_picture(file: BinaryIO, facts: dict[str, Any], limits: Limits) -> Array:
    """Stored values (rows, columns) or (rows, columns, 3), not turned by EXIF.

    Raises:
        UndecodableFrame: If the picture does not decode.
    """
    try:
        with _opened(file, limits) as image:
            mode, dtype, _ = _MODES[image.mode]
            values = np.asarray(image if image.mode == mode else image.convert(mode))
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, UnreadableFile, FileTooLarge) as error:
        raise UndecodableFrame("the picture does not decode") from error
    if values.shape[:2] != (facts["rows"], facts["columns"]):
        raise UndecodableFrame(f"the picture decodes to {values.shape}, {facts['rows'], facts['columns']} needed")
    return np.ascontiguousarray(values, dtype=dtype)


def _opened(file: BinaryIO, limits: Limits) -> Image.Image:
    """A picture whose header is read and whose size is within the limits."""
    file.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit follows
            image = Image.open(file, formats=("PNG", "JPEG", "TIFF"))
    except Image.DecompressionBombError as error:
        raise FileTooLarge("the picture has more pixels than are taken") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        raise UnreadableFile("a PNG, JPEG or TIFF was begun and its header does not read") from error
    unpacked = image.width * image.height * 4
    if unpacked > limits.max_frame_bytes:
        raise FileTooLarge(
            f"{image.width} x {image.height} pixels are {unpacked} bytes, {limits.max_frame_bytes} taken"
        )
    # The first picture of a camera's MPO is the picture; pages and animations are several, and none is the one.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        raise UnsupportedFile("a file of one picture is taken, one of several pages came: upload the pages as files")
    if image.mode not in _MODES:
        raise UnsupportedFile(f"grey, palette, RGB and CMYK pictures are read, {image.mode} came")
    return image


def _photometric(image: Image.Image, samples: int) -> Photometric:
    if samples == 3:
        return Photometric.RGB
    # Pillow turns WhiteIsZero over for 1 and 8 bits only.
    tags = getattr(image, "tag_v2", {})
    is_inverted = image.format == "TIFF" and image.mode not in ("1", "L", "LA") and tags.get(_TIFF_PHOTOMETRIC) == 0
    return Photometric.MONOCHROME1 if is_inverted else Photometric.MONOCHROME2


def _exif_orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error):
        return 1  # what cannot be read turns nothing
    return orientation if orientation in _ORDERS else 1
