"""How much one file may unpack to. Declared sizes are checked against these before anything is allocated."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds in bytes; the defaults are those of `Settings`.

    Attributes:
        max_frame_bytes: One decoded frame.
        max_unpacked_bytes: All frames of one file, or what a deflated or gzipped file inflates to.
        max_volume_bytes: What is unpacked in memory as a whole: a gzipped NIfTI, a deflated data set.
        max_value_bytes: One header value, so that a forged length cannot fill the memory.
    """

    max_frame_bytes: int = 512 * MIB
    max_unpacked_bytes: int = 4096 * MIB
    max_volume_bytes: int = 1024 * MIB
    max_value_bytes: int = 64 * MIB
