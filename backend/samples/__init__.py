"""The images that a demonstration starts with: real, small, freely licensed. `samples.json` says where each is from."""

import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Sample:
    """One upload's worth of files.

    Attributes:
        paths: On disk, all of them present.
        stated_modality: What an upload states of files that say nothing of themselves; "" for DICOM.
        licence: SPDX name where there is one; its text is `licence_path`.
        source: Repository or package, path and version.
    """

    id: str
    title: str
    paths: tuple[Path, ...]
    stated_modality: str
    description: str
    licence: str
    licence_path: Path
    source: str


def samples() -> tuple[Sample, ...]:
    """Every sample, in the order in which they are shown."""
    rows = json.loads((_FOLDER / "samples.json").read_text(encoding="utf-8"))
    return tuple(
        Sample(
            id=row["id"],
            title=row["title"],
            paths=tuple(_FOLDER / "files" / name for name in row["files"]),
            stated_modality=row["stated_modality"],
            description=row["description"],
            licence=row["licence"],
            licence_path=_FOLDER / "licences" / row["licence_file"],
            source=row["source"],
        )
        for row in rows
    )
