"""Windows, greys and small copies; pictures of cameras; the samples that are shipped."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from backend.domain.errors import FileTooLarge, TruncatedPixels, UnreadableFile, UnsupportedFile
from backend.domain.study import FrameValues, Photometric, SeriesKind
from backend.domain.view import VoiLutFunction, Window
from backend.imaging.arrange import StoredInstance, arrange
from backend.imaging.frames import decode_frame, raw_location
from backend.imaging.header import read_header
from backend.imaging.limits import Limits
from backend.imaging.render import auto_window, encode_jpeg, encode_png, render
from backend.samples import samples
from tests.factories.images import arrange_files, header_of, make_picture

GREY, INVERSE, COLOUR = Photometric.MONOCHROME2, Photometric.MONOCHROME1, Photometric.RGB
PLAIN = FrameValues()


def greys(stored: list[float], window: Window, values: FrameValues = PLAIN, photometric: Photometric = GREY,
          dtype: str = "int16") -> list[int]:  # fmt: skip
    return render(np.array([stored], dtype), values, photometric, window)[0].tolist()


# ---- windows


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32", "float64"])
def test_c15_a_soft_tissue_window_gives_the_standards_greys(dtype: str) -> None:
    assert greys([-1000, 40, 300], Window(40, 400), dtype=dtype) == [0, 128, 255]


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32"])
def test_c18_negative_hu_do_not_wrap(dtype: str) -> None:
    assert greys([-1000, -160, 40, 240, 300], Window(40, 400), dtype=dtype) == [0, 0, 128, 255, 255]


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float64"])
def test_c10_monochrome1_is_turned_over_after_the_window(dtype: str) -> None:
    assert greys([900, 1000, 1100], Window(1000, 200), photometric=INVERSE, dtype=dtype) == [255, 127, 0]


def test_rescale_comes_before_the_window() -> None:
    values = FrameValues(slope=2, intercept=-1024)
    assert greys([0, 532, 800], Window(40, 400), values) == [0, 128, 255]


def test_linear_exact_and_sigmoid_follow_their_formulas() -> None:
    # PS3.3 C.11.2.1.3: LINEAR_EXACT (x - c) / w + 0.5; SIGMOID 1 / (1 + exp(-4 (x - c) / w)).
    assert greys([-50, 0, 25, 50], Window(0, 100, VoiLutFunction.LINEAR_EXACT)) == [0, 128, 191, 255]
    assert greys([-1000, 0, 25, 1000], Window(0, 100, VoiLutFunction.SIGMOID)) == [0, 128, 186, 255]


def test_the_narrowest_linear_window_is_a_threshold() -> None:
    assert greys([39, 40], Window(40, 1)) == [0, 255]


def test_tables_and_arithmetic_give_the_same_greys() -> None:
    stored = np.arange(-32768, 32768, dtype=np.int16).reshape(256, 256)
    values = FrameValues(slope=0.37, intercept=-11.5, padding=(-2000, -1990))
    for window in (Window(40, 400), Window(0.5, 1), Window(0, 9999.5, VoiLutFunction.SIGMOID)):
        for photometric in (GREY, INVERSE):
            by_table = render(stored, values, photometric, window)
            assert np.array_equal(by_table, render(stored.astype(np.int32), values, photometric, window))


@pytest.mark.parametrize("photometric", [GREY, INVERSE])
def test_c17_padding_is_black_whatever_the_window(photometric: Photometric) -> None:
    values = FrameValues(slope=1, intercept=3000, padding=(-2000, -2000))
    assert greys([-2000, 40], Window(1000, 10), values, photometric)[0] == 0


def test_what_is_no_number_is_black() -> None:
    nan, inf = float("nan"), float("inf")
    assert greys([nan, inf, 1], Window(0, 2, VoiLutFunction.LINEAR_EXACT), dtype="float32") == [0, 0, 255]


def test_colour_stays_as_it_is() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert render(pixels, PLAIN, COLOUR, Window(40, 400)).tolist() == pixels.tolist()


# ---- the window of a file without one


def test_c17_the_automatic_window_leaves_padding_out() -> None:
    frame = np.full((20, 101), -2000, np.int16)
    frame[10:] = np.arange(101)
    values = FrameValues(padding=(-2000, -2000))
    window = auto_window(frame, values, GREY)
    assert window == Window(50.5, 101)
    picture = render(frame, values, GREY, window)
    assert (picture[15, 0], picture[15, 100], picture[0, 0]) == (0, 255, 0)
    assert picture[15, 50] == 128


def test_a_few_bright_values_do_not_darken_the_rest() -> None:
    frame = np.tile(np.arange(200, dtype=np.int16), (200, 1))
    frame[0, :50] = 30_000
    window = auto_window(frame, PLAIN, GREY)
    assert window.center + window.width / 2 <= 201


def test_bytes_are_shown_as_they_are() -> None:
    frame = np.arange(256, dtype=np.uint8).reshape(16, 16)
    window = auto_window(frame, PLAIN, GREY)
    assert render(frame, PLAIN, GREY, window).tolist() == frame.tolist()


def test_a_label_map_of_few_values_is_not_black() -> None:
    frame = np.array([[0, 1, 2, 3]], np.uint8)
    assert render(frame, PLAIN, GREY, auto_window(frame, PLAIN, GREY)).tolist() == [[0, 85, 170, 255]]


@pytest.mark.parametrize("frame", [
    np.full((3, 3), 7, np.int16), np.full((3, 3), 0.25, np.float32), np.full((3, 3), np.nan, np.float32),
    np.array([[0.0, 1e-6]], np.float64), np.array([[-np.inf, 3.0, 4.0]], np.float32),
])  # fmt: skip
def test_every_frame_has_a_window(frame: np.ndarray) -> None:
    picture = render(frame, PLAIN, GREY, auto_window(frame, PLAIN, GREY))
    assert picture.shape == frame.shape


def test_a_frame_of_padding_alone_has_a_window() -> None:
    assert auto_window(np.zeros((2, 2), np.int16), FrameValues(padding=(0, 0)), GREY).width > 0


def test_a_falling_slope_turns_the_ends_of_the_window() -> None:
    frame = np.array([[0, 100]], np.int16)
    assert auto_window(frame, FrameValues(slope=-1, intercept=10), GREY) == Window(-39.5, 101)


# ---- encoded


def test_a_png_is_the_picture_pixel_for_pixel() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (7, 9, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_png(picture)))), picture)


@pytest.mark.parametrize(("shape", "aspect", "size"), [
    ((512, 512), 1.0, (256, 256)),
    ((100, 100), 0.5, (200, 100)),  # C07: rows 1 mm apart and columns 2 mm
    ((100, 100), 2.0, (100, 200)),
    ((1000, 500), 1.0, (128, 256)),
    ((16, 16), 1.0, (16, 16)),
    ((4000, 1), 1.0, (1, 256)),
])  # fmt: skip
def test_c07_a_small_copy_keeps_the_shape_of_the_patient(
    shape: tuple[int, int], aspect: float, size: tuple[int, int]
) -> None:
    jpeg = encode_jpeg(np.zeros(shape, np.uint8), longest_side=256, aspect=aspect)
    assert Image.open(io.BytesIO(jpeg)).size == size


# ---- pictures of cameras


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_turned_as_its_exif_says(orientation: int) -> None:
    image = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    image.save(buffer, "PNG", exif=exif)
    file = buffer.getvalue()
    layout, facts = arrange_files([file])[0], header_of(file).facts
    stored = decode_frame(io.BytesIO(file), facts, 0)
    assert (facts["rows"], facts["columns"]) == (3, 4)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))))
    assert layout.display.frame_to_picture(stored).tolist() == expected.tolist()


@pytest.mark.parametrize(("pixels", "dtype", "photometric"), [
    (np.full((2, 3), 9, np.uint8), "uint8", GREY),
    (np.full((2, 3, 3), 9, np.uint8), "uint8", COLOUR),
    (np.full((2, 3, 4), 9, np.uint8), "uint8", COLOUR),
    (np.full((2, 3), 40_000, np.uint16), "uint16", GREY),
])  # fmt: skip
def test_png_pixels_keep_their_depth_and_lose_alpha(pixels: np.ndarray, dtype: str, photometric: Photometric) -> None:
    file = make_picture(pixels)
    facts = header_of(file, stated_modality="OP").facts
    assert (facts["dtype"], facts["photometric"], facts["modality"]) == (dtype, photometric, "OP")
    decoded = decode_frame(io.BytesIO(file), facts, 0)
    assert decoded.tolist() == pixels[..., :3].tolist() if pixels.ndim == 3 else decoded.tolist() == pixels.tolist()
    assert raw_location(facts, 0) is None


def test_a_tiff_of_floats_keeps_its_values() -> None:
    pixels = np.array([[0.5, -2.25]], np.float32)
    file = make_picture(pixels, "TIFF")
    assert decode_frame(io.BytesIO(file), header_of(file).facts, 0).tolist() == pixels.tolist()


def test_a_tiff_of_several_pages_is_refused() -> None:
    page = Image.fromarray(np.zeros((2, 2), np.uint8))
    buffer = io.BytesIO()
    page.save(buffer, "TIFF", save_all=True, append_images=[page])
    with pytest.raises(UnsupportedFile, match="several pages"):
        header_of(buffer.getvalue())


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_picture_cut_short_is_refused(kind: str) -> None:
    whole = make_picture(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8), kind)
    with pytest.raises(TruncatedPixels):
        header_of(whole[: len(whole) // 2])
    with pytest.raises(UnreadableFile):
        header_of(whole[:12] + b"\0" * 20)


def test_c63_a_picture_of_too_many_pixels_is_refused_before_it_is_unpacked() -> None:
    file = make_picture(np.zeros((4000, 4000), np.uint8))
    with pytest.raises(FileTooLarge, match="4000 x 4000"):
        header_of(file, limits=Limits(max_frame_bytes=1_000_000))


# ---- the samples


def test_the_samples_are_small_licensed_and_every_one_opens() -> None:
    shipped = samples()
    assert len({sample.id for sample in shipped}) == len(shipped)
    assert sum(path.stat().st_size for sample in shipped for path in sample.paths) < 15_000_000
    for sample in shipped:
        assert sample.licence_path.read_text(encoding="utf-8", errors="replace").strip()
        assert sample.licence
        assert sample.source
        layouts = arrange([_stored(path, sample.stated_modality) for path in sample.paths])
        assert len(layouts) == 1, sample.id


def test_the_ct_samples_are_volumes_in_hu() -> None:
    for sample in samples():
        if sample.id in ("ct-abdomen", "ct-abdomen-dicom"):
            layout = arrange([_stored(path, sample.stated_modality) for path in sample.paths])[0]
            assert (layout.kind, layout.unit, layout.modality) == (SeriesKind.VOLUME, "HU", "CT")


def _stored(path: Path, stated_modality: str) -> StoredInstance:
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    header = read_header(io.BytesIO(content), sha256=sha256, size=len(content), stated_modality=stated_modality)
    return StoredInstance(path.name, header.facts)
