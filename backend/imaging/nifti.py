"""NIfTI-1 and NIfTI-2 files: header, place in the patient, display order, voxels.

NIfTI's patient axes are RAS; they become our LPS here and nowhere else. Which transform holds: the sform where its
code is above 0, else the qform where its code is above 0, else none, and then nothing is said about where the patient
lies. A file whose two transforms contradict each other is placed by its sform, in viewer, tools and export alike.

Source: nifti1.h (NIMH, 2007), sections "3D IMAGE (VOLUME) ORIENTATION AND LOCATION IN SPACE" and "DATA SCALING".
"""

import math
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from nibabel.nifti1 import Nifti1Header
from nibabel.nifti2 import Nifti2Header
from nibabel.spatialimages import HeaderDataError

from backend.domain.errors import (
    FileTooLarge,
    TruncatedPixels,
    UndecodableFrame,
    UnreadableFile,
    UnsupportedFile,
)
from backend.domain.study import Identity, Photometric, SpacingSource
from backend.domain.volume import is_grid
from backend.imaging.instance import InstanceHeader, hash_key
from backend.imaging.limits import Limits

Array = np.ndarray[Any, np.dtype[Any]]
HEADER_BYTES = 540
_GZIP = b"\x1f\x8b"
_RAS_TO_LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
_MM_PER_UNIT = {"mm": 1.0, "unknown": 1.0, "meter": 1000.0, "micron": 0.001}  # unknown is mm in every writer we know
# NIfTI data type code: numpy's name of what is stored, of what is served, samples stored. Source: nifti1.h DT_*.
_TYPES = {
    2: ("u1", "uint8", 1), 4: ("i2", "int16", 1), 8: ("i4", "int32", 1), 16: ("f4", "float32", 1),
    64: ("f8", "float64", 1), 128: ("u1", "uint8", 3), 256: ("i1", "int8", 1), 512: ("u2", "uint16", 1),
    768: ("u4", "uint32", 1), 1024: ("i8", "float64", 1), 1280: ("u8", "float64", 1), 2304: ("u1", "uint8", 4),
}  # fmt: skip
_EXACT_IN_DOUBLE = 2**53
# Air is about -1000 HU and every picture of a patient holds some; values that start higher are no CT numbers.
_AIR_BELOW_HU = -500


def nifti_version(head: bytes) -> int | None:
    """1 or 2 for the first bytes of a single-file NIfTI, None for anything else."""
    if head[344:348] == b"n+1\0" and head[:4] in (b"\x5c\x01\0\0", b"\0\0\x01\x5c"):
        return 1
    if head[4:8] == b"n+2\0" and head[:4] in (b"\x1c\x02\0\0", b"\0\0\x02\x1c"):
        return 2
    return None


def gunzipped_head(file: BinaryIO) -> bytes:
    """The first bytes of what a gzip file holds; empty where it does not inflate."""
    file.seek(0)
    try:
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(file.read(4096), HEADER_BYTES)
    except zlib.error:
        return b""


def read_nifti(
    file: BinaryIO, head: bytes, *, sha256: str, size: int, stated_modality: str, is_gzip: bool, limits: Limits
) -> InstanceHeader:
    """Read a NIfTI file; a gzipped one is unpacked once to count its voxels, never more than it declares.

    Args:
        head: Its first `HEADER_BYTES` bytes, unpacked.

    Raises:
        FileRefused: The subclass that says why.
    """
    facts = _facts(head, is_gzip=is_gzip, limits=limits)
    least = _count_voxels(file, size, facts)
    is_hu = stated_modality == "CT" and facts["samples"] == 1 and least is not None
    if is_hu and least * facts["slope"] + facts["intercept"] <= _AIR_BELOW_HU:
        facts["unit"] = "HU"
    facts["modality"] = stated_modality
    key = hash_key(sha256)
    return InstanceHeader("nifti", key, key, key, stated_modality, "", "", None, Identity(), facts)


def _facts(head: bytes, *, is_gzip: bool, limits: Limits) -> dict[str, Any]:
    header = _header(head)
    code = int(header["datatype"])
    if code not in _TYPES:
        raise UnsupportedFile(f"NIfTI voxels of whole or real numbers or RGB are read, data type {code} came")
    stored, served, stored_samples = _TYPES[code]
    samples = 3 if stored_samples >= 3 else 1
    rank = int(header["dim"][0])
    dims = [int(extent) for extent in header["dim"][1 : rank + 1]] if 1 <= rank <= 7 else []
    if rank < 2 or not dims or min(dims) < 1:
        raise UnreadableFile(f"a NIfTI picture needs 2 to 7 dimensions of 1 or more, {rank}: {dims} came")
    columns, rows, slices, *further = [*dims, 1, 1][: max(rank, 4)]
    frames = slices * math.prod(further)
    frame_bytes = rows * columns * samples * np.dtype(served).itemsize
    total = frame_bytes * frames
    bound = limits.max_volume_bytes if is_gzip else limits.max_unpacked_bytes
    if frame_bytes > limits.max_frame_bytes or total > bound:
        raise FileTooLarge(f"{dims} voxels are {total} bytes, at most {bound} are taken")
    offset = int(header["vox_offset"]) if math.isfinite(float(header["vox_offset"])) else 0
    slope, intercept = _scaling(header)
    affine, spacing, source = _place(header)
    return {
        "format": "nifti",
        "description": "",
        "number": None,
        "rows": rows,
        "columns": columns,
        "samples": samples,
        "dtype": served,
        "photometric": str(Photometric.RGB if samples == 3 else Photometric.MONOCHROME2),
        "frames": frames,
        "slices": slices,
        "stored": ("<" if header.endianness == "<" else ">") + stored,
        "stored_samples": stored_samples,
        "offset": max(offset, int(header["sizeof_hdr"])),
        "gzip": is_gzip,
        "slope": 1.0 if samples == 3 else slope,
        "intercept": 0.0 if samples == 3 else intercept,
        "unit": None,
        "affine_kji_to_lps_mm": affine,
        "spacing_kji_mm": spacing,
        "spacing_source": str(source),
    }


def _header(head: bytes) -> Any:
    version = nifti_version(head)
    kind = Nifti1Header if version == 1 else Nifti2Header
    if version is None or len(head) < kind.sizeof_hdr:
        raise UnreadableFile("the file ends inside its NIfTI header")
    try:
        return kind(head[: kind.sizeof_hdr], check=False)
    except (HeaderDataError, ValueError) as error:
        raise UnreadableFile("the NIfTI header contradicts itself") from error


def _scaling(header: Any) -> tuple[float, float]:
    """scl_slope and scl_inter. A slope of 0, and one that is no number, mean that values are not scaled."""
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if slope == 0 or not math.isfinite(slope):
        return 1.0, 0.0
    return slope, intercept if math.isfinite(intercept) else 0.0


def _place(header: Any) -> tuple[list[list[float]] | None, list[float] | None, SpacingSource]:
    """The affine from `[k, j, i, 1]` to LPS mm where the file has one, and the distances between voxel centres."""
    unit = _MM_PER_UNIT.get(header.get_xyzt_units()[0], 1.0) if int(header["xyzt_units"]) & 7 in (0, 1, 2, 3) else 1.0
    affine_ijk_to_ras: Array | None = None
    try:
        if int(header["sform_code"]) > 0:
            affine_ijk_to_ras = header.get_sform()
        elif int(header["qform_code"]) > 0:
            affine_ijk_to_ras = header.get_qform()
    except (HeaderDataError, ValueError, np.linalg.LinAlgError):
        affine_ijk_to_ras = None
    if affine_ijk_to_ras is not None:
        affine = (_RAS_TO_LPS @ np.asarray(affine_ijk_to_ras, dtype=np.float64))[:, [2, 1, 0, 3]]
        affine[:3] *= unit
        if is_grid(affine):
            lengths = np.linalg.norm(affine[:3, :3], axis=0)
            return affine.tolist(), lengths.tolist(), SpacingSource.PATIENT
    spacing = [abs(float(header["pixdim"][axis])) * unit for axis in (3, 2, 1)]
    if all(math.isfinite(step) and step > 0 for step in spacing):
        return None, spacing, SpacingSource.PATIENT
    return None, None, SpacingSource.UNKNOWN


def _count_voxels(file: BinaryIO, size: int, facts: dict[str, Any]) -> float | None:
    """Hold the file to its header: as many bytes as declared. Gives the least stored value, None for colour.

    Raises:
        TruncatedPixels: If there are fewer.
    """
    needed = stored_bytes(facts)
    dtype = np.dtype(facts["stored"])
    least, present, rest = math.inf, 0, b""
    for chunk in _stored_chunks(file, facts, needed):
        present += len(chunk)
        rest += chunk
        whole = len(rest) // dtype.itemsize * dtype.itemsize
        values = np.frombuffer(rest[:whole], dtype=dtype)
        rest = rest[whole:]
        if len(values):
            least = min(least, float(np.fmin.reduce(values)))
    if present < needed:
        raise TruncatedPixels(
            f"{facts['rows']} x {facts['columns']} x {facts['frames']} voxels need {needed} bytes, {present} came"
        )
    return least if facts["samples"] == 1 and math.isfinite(least) else None


def stored_bytes(facts: dict[str, Any]) -> int:
    """Bytes of all voxels as they are stored."""
    voxels = facts["rows"] * facts["columns"] * facts["frames"] * facts["stored_samples"]
    return int(voxels * np.dtype(facts["stored"]).itemsize)


def _stored_chunks(file: BinaryIO, facts: dict[str, Any], needed: int) -> Iterator[bytes]:
    """The voxels' bytes, `needed` at most; of a gzipped file no more is unpacked than that.

    Raises:
        TruncatedPixels: If a gzip stream ends, or breaks, before `needed` bytes.
    """
    chunk_bytes = 1 << 22
    if not facts["gzip"]:
        file.seek(facts["offset"])
        while needed > 0 and (chunk := file.read(min(chunk_bytes, needed))):
            needed -= len(chunk)
            yield chunk
        return
    file.seek(0)
    stream, skip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), facts["offset"]
    while needed > 0:
        if stream.eof:  # gzip files may be several streams one after the other: RFC 1952 2.2
            packed = stream.unused_data or file.read(1 << 18)
            stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        else:
            packed = stream.unconsumed_tail or file.read(1 << 18)
        if not packed:
            return
        try:
            chunk = stream.decompress(packed, chunk_bytes)
        except zlib.error as error:
            raise TruncatedPixels(f"the gzip stream breaks with {needed} bytes of voxels to come") from error
        chunk, skip = chunk[skip:], max(0, skip - len(chunk))
        chunk = chunk[:needed]
        needed -= len(chunk)
        if chunk:
            yield chunk


def nifti_raw_location(facts: dict[str, Any], frame_number: int) -> tuple[int, int] | None:
    """Offset and size of a stored slice whose bytes in the file are already what is served, else None."""
    served = np.dtype(facts["dtype"]).newbyteorder("<")
    if facts["gzip"] or np.dtype(facts["stored"]) != served or facts["stored_samples"] != facts["samples"]:
        return None
    size = facts["rows"] * facts["columns"] * facts["samples"] * served.itemsize
    return facts["offset"] + frame_number * size, size


def decode_nifti_volume(file: BinaryIO, facts: dict[str, Any]) -> Array:
    """All voxels as stored, without scaling: (k, j, i), or (k, j, i, 3) for RGB; the times of a 4D file follow in k.

    Raises:
        UndecodableFrame: If the file ends before, or a 64 bit whole number has no exact double.
    """
    try:
        raw = b"".join(_stored_chunks(file, facts, stored_bytes(facts)))
    except TruncatedPixels as error:
        raise UndecodableFrame(error.message) from error
    return _served(raw, facts, facts["frames"])


def decode_nifti_frame(file: BinaryIO, facts: dict[str, Any], frame_number: int) -> Array:
    """One stored slice (j, i) or (j, i, 3); of a gzipped file the whole volume is unpacked for it."""
    if facts["gzip"]:
        frame: Array = decode_nifti_volume(file, facts)[frame_number]
        return frame
    size = stored_bytes(facts) // facts["frames"]
    file.seek(facts["offset"] + frame_number * size)
    only: Array = _served(file.read(size), facts, 1)[0]
    return only


def _served(raw: bytes, facts: dict[str, Any], frames: int) -> Array:
    needed = stored_bytes(facts) // facts["frames"] * frames
    if len(raw) < needed:
        raise UndecodableFrame(f"{frames} slices need {needed} bytes of voxels, {len(raw)} came")
    stored = np.frombuffer(raw, dtype=facts["stored"])
    is_wide = stored.dtype.kind in "iu" and stored.dtype.itemsize == 8
    # Compared as whole numbers: a double would round 2**53 + 1 to what passes.
    if is_wide and (int(stored.max()) > _EXACT_IN_DOUBLE or int(stored.min()) < -_EXACT_IN_DOUBLE):
        raise UndecodableFrame(f"64 bit voxels up to {_EXACT_IN_DOUBLE} are exact, greater ones came")
    shape = (frames, facts["rows"], facts["columns"])
    if facts["stored_samples"] > 1:
        stored = stored.reshape(*shape, facts["stored_samples"])[..., :3]
    return np.ascontiguousarray(stored.reshape(*shape, *stored.shape[3:]), dtype=facts["dtype"])
