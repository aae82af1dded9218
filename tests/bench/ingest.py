"""From received bytes to a series that can be looked at, and to voxels, beside SimpleITK's series reader.

The series is a CT of 512 x 512 slices as scanners write them: 12 bits in words of 16, so that a frame is decoded and
not copied, and some 140 header elements (a real CT of the collection has 134), in files of random order.
`series_200_viewable` is the whole of `services.ingest` on a received upload, database included, until the geometry is
known and a frame was served; the peer's figure is reading names and pixels, its way to know the geometry. Every voxel
is compared.
"""

import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK
from pydicom.uid import ExplicitVRLittleEndian

from backend.domain.access import Actor, Role
from backend.domain.study import UploadState
from backend.imaging.arrange import StoredInstance, arrange
from backend.imaging.frames import decode_frame
from backend.imaging.header import read_header
from backend.services import ingest as service
from backend.services.series import frame_values
from backend.services.studies import study_details
from backend.settings import Settings
from backend.store.blobs import DirectoryBlobs
from backend.store.repository import Store, new_id
from backend.store.tables import Base, ProjectRow, UserRow
from tests.bench.report import ROOT, Metric
from tests.factories.images import make_dataset, write_dicom

SLICES, MANY_SLICES, SIDE, RUNS = 200, 1500, 512, 5
NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
VOLUME_DTYPE = np.dtype(np.int16)


def run() -> dict[str, Metric]:
    """Seconds of a series of 200, megabytes of one of 1,500."""
    with tempfile.TemporaryDirectory(prefix="serpens-bench-") as folder:
        place = Path(folder)
        series = write_series(place / "series", SLICES)
        peer = f"SimpleITK {SimpleITK.Version().VersionString()}, ImageSeriesReader"
        _require_equal(read_by_serpens(series), read_by_simpleitk(series))
        peer_s, ours_s, viewable_s = [], [], []
        for number in range(RUNS):  # in turn, so that a busy minute of the machine is everybody's
            peer_s.append(_timed(lambda: read_by_simpleitk(series)))
            ours_s.append(_timed(lambda: read_by_serpens(series)))
            viewable_s.append(ingest_seconds(series, place / f"home-{number}"))
        metrics = {
            "series_200_viewable": Metric.of(
                viewable_s, "s", peer_samples=peer_s, peer=peer, target=statistics.median(peer_s) / 3
            ),
            "series_200_decoded": Metric.of(
                ours_s, "s", peer_samples=peer_s, peer=peer, target=statistics.median(peer_s) / 1.5
            ),
        }
        if (dcm2niix := shutil.which("dcm2niix")) is not None:
            metrics["series_200_decoded_and_dcm2niix"] = _beside_dcm2niix(dcm2niix, series, place, ours_s)
        shutil.rmtree(series)
        metrics["series_1500_peak_mb"] = _peak_of_many(place)
    return metrics


# ---- the series


def write_series(folder: Path, slices: int) -> Path:
    """A CT with noise in it, in files whose names say nothing of their order."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(1).integers(0, 4096, (SIDE, SIDE), dtype=np.uint16)
    names = random.Random(1).sample(range(100_000), slices)
    template = make_dataset(
        noise, BitsStored=12, HighBit=11, PixelSpacing=[0.7, 0.7], RescaleSlope=1, RescaleIntercept=-1024,
        RescaleType="HU", WindowCenter=[40, -600], WindowWidth=[400, 1500], SliceThickness=1.25, KVP=120,
        Manufacturer="bench", ImageType=["ORIGINAL", "PRIMARY", "AXIAL"],
    )  # fmt: skip
    for number in range(100):  # what a scanner writes besides: private elements before the image's own
        template.add_new((0x0019, 0x1000 + number), "LO", f"private value {number}")
    template.add_new((0x0019, 0x0010), "LO", "BENCH")
    for k in range(slices):
        template.SOPInstanceUID = f"1.2.826.0.1.{k + 1}"
        template.InstanceNumber = k + 1
        template.ImagePositionPatient = [-180, -180, round(1.25 * k, 2)]
        template.PixelData = np.roll(noise, k, axis=1).tobytes()
        content = write_dicom(template, syntax=ExplicitVRLittleEndian)
        (folder / f"IM{names[k]:05d}").write_bytes(content)
    return folder


# ---- readers


def read_by_simpleitk(folder: Path) -> np.ndarray:
    """(k, j, i) as SimpleITK's documented way reads a series."""
    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    return SimpleITK.GetArrayFromImage(reader.Execute())


def read_by_serpens(folder: Path) -> np.ndarray:
    """(k, j, i), rescaled, with the parts that ingest and the frame route are made of."""
    instances = []
    for path in folder.iterdir():
        with path.open("rb") as file:
            header = read_header(file, sha256="", size=path.stat().st_size)
        instances.append(StoredInstance(path.name, header.facts))
    facts = {instance.id: instance.facts for instance in instances}
    layout = arrange(instances)[0]
    if layout.geometry is None:
        raise RuntimeError(f"the bench's series is no volume: {layout.kind_reason}")
    volume = np.empty(layout.geometry.shape_kji, dtype=VOLUME_DTYPE)
    for frame in layout.frames:
        with (folder / frame.instance_id).open("rb") as file:
            stored = decode_frame(file, facts[frame.instance_id], frame.frame_number)
        if frame.values.slope == 1 and frame.values.intercept.is_integer():
            intercept = int(frame.values.intercept)
            np.add(stored, intercept, out=volume[frame.index], dtype=VOLUME_DTYPE, casting="unsafe")
        else:
            volume[frame.index] = stored * frame.values.slope + frame.values.intercept
    return volume


def _require_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    if not np.array_equal(ours, theirs):
        raise RuntimeError(f"the readers differ: {ours.shape} and {theirs.shape}, in voxels or in size")


# ---- the whole of ingest


def ingest_seconds(folder: Path, home: Path) -> float:
    """Seconds of `services.ingest` from an upload that is received to its first frame."""
    home.mkdir(parents=True)
    settings = Settings(_env_file=None, home=home)  # type: ignore[call-arg]
    store, blobs = Store(settings.database), DirectoryBlobs(settings.blobs)
    Base.metadata.create_all(store.engine)
    actor, project_id = _member(store)
    upload = service.open_upload(actor, project_id, request_key="bench", store=store, clock=_clock)
    with service.open_receiver(actor, upload.id, store=store, blobs=blobs, settings=settings) as receiver:
        for path in sorted(folder.iterdir()):
            receiver.open_file(path.name)
            receiver.write(path.read_bytes())
            receiver.close_file()
    service.finish_receiving(actor, upload.id, store=store, clock=_clock)

    def until_first_frame() -> None:
        while not service.ingest(
            upload.id, store=store, blobs=blobs, settings=settings, clock=_clock, owner="bench", until_s=20
        ):
            pass
        _first_frame(actor, upload.id, store=store, blobs=blobs, settings=settings)

    seconds = _timed(until_first_frame)
    store.close()
    shutil.rmtree(home)
    return seconds


def _first_frame(actor: Actor, upload_id: str, *, store: Store, blobs: DirectoryBlobs, settings: Settings) -> None:
    """Ask for a frame the way the viewer does, which fails where the series cannot be looked at."""
    upload = service.upload_status(actor, upload_id, store=store)
    if upload.state is not UploadState.DONE or upload.problems:
        raise RuntimeError(f"the bench's upload ended as {upload.state} with {len(upload.problems)} problems")
    details = study_details(actor, upload.study_ids[0], store=store)
    series = details.series[0]
    frame = frame_values(actor, series.id, 0, store=store, blobs=blobs, settings=settings)
    if len(frame) != SIDE * SIDE * VOLUME_DTYPE.itemsize:
        raise RuntimeError(f"a frame of {SIDE} x {SIDE} words was needed, {len(frame)} bytes came")


def _member(store: Store) -> tuple[Actor, str]:
    user_id, project_id = new_id(), new_id()
    with store.engine.begin() as connection:
        connection.execute(
            Base.metadata.tables[UserRow.__tablename__].insert(),
            {"id": user_id, "name": "bench", "display_name": "Bench", "password_hash": "-", "role": str(Role.ADMIN),
             "is_active": True, "is_sample": False, "created_at": NOW},
        )  # fmt: skip
        connection.execute(
            Base.metadata.tables[ProjectRow.__tablename__].insert(),
            {"id": project_id, "name": "bench", "is_demo": False, "created_at": NOW},
        )
    return Actor(user_id, "bench", Role.ADMIN, frozenset({project_id})), project_id


def _clock() -> datetime:
    return datetime.now(UTC)


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


# ---- other peers, memory


def _beside_dcm2niix(program: str, series: Path, place: Path, ours_s: list[float]) -> Metric:
    """dcm2niix reads, sorts and writes an uncompressed NIfTI; the writing is in its figure and not in ours."""
    target = place / "dcm2niix"
    target.mkdir()
    command = [program, "-z", "n", "-b", "n", "-w", "1", "-o", str(target), str(series)]
    peer_s = [_timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(RUNS)]
    return Metric.of(ours_s, "s", peer_samples=peer_s, peer=f"dcm2niix {' '.join(command[1:7])}")


def _peak_of_many(place: Path) -> Metric:
    """The most memory that a process of its own holds while it takes in 1,500 slices and serves one."""
    series = write_series(place / "many", MANY_SLICES)
    peaks = {
        reader: float(json.loads(_in_process(reader, series, place / f"home-{reader}"))["peak_mb"])
        for reader in ("serpens", "simpleitk")
    }
    return Metric.of(
        [peaks["serpens"]], "MB", peer_samples=[peaks["simpleitk"]], target=1500,
        peer=f"SimpleITK {SimpleITK.Version().VersionString()}, the volume in memory",
    )  # fmt: skip


def _in_process(reader: str, series: Path, home: Path) -> str:
    command = [sys.executable, "-m", "tests.bench.ingest", reader, str(series), str(home)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()[-1]


def _measure_peak(reader: str, series: Path, home: Path) -> dict[str, Any]:
    if reader == "serpens":
        ingest_seconds(series, home)
    else:
        read_by_simpleitk(series)
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    print(json.dumps(_measure_peak(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
