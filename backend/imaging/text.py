"""DICOM text in its character set, made safe for a database and a page."""

import hashlib
import re

from pydicom.charset import convert_encodings, decode_bytes, python_encoding
from pydicom.valuerep import PN_DELIMS, TEXT_VR_DELIMS

_UID = re.compile(r"[0-9.]{1,64}\Z", re.ASCII)


def decode_text(raw: bytes, charsets: list[str], *, at_most: int, person_name: bool = False) -> str:
    """Read a text value.

    A character set that is unknown, or that contradicts the bytes, costs the letters outside ASCII, which become
    U+FFFD, and never the file. Control characters become spaces.

    Args:
        charsets: The values of Specific Character Set (0008,0005).
        at_most: Characters that are kept.

    Source: DICOM PS3.3 C.12.1.1.2, PS3.5 6.1.
    """
    raw = raw.rstrip(b" \0")
    if raw.isascii() and b"\x1b" not in raw:
        text = raw.decode("ascii")
    elif not all(charset in python_encoding for charset in charsets):
        # Checked here, as pydicom would write the unknown value to the log.
        text = raw.decode("ascii", "replace")
    else:
        try:
            encodings = convert_encodings(charsets or [""])
            text = decode_bytes(raw, encodings, PN_DELIMS if person_name else TEXT_VR_DELIMS)
        except (LookupError, UnicodeError):
            text = raw.decode("ascii", "replace")
    if text.isprintable() and "  " not in text:
        return text.strip()[:at_most]
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:at_most]


def uid_key(text: str) -> str:
    """A UID as it is; text that is none as its hash, so that files that share it stay together; "" for none."""
    if not text or _UID.match(text):
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
