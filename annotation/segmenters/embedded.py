"""The bodies that come with Serpens and run on a CPU, behind the one protocol."""

import time

import numpy as np
from numpy.typing import NDArray

from annotation.segmenters import concepts
from annotation.segmenters.finding import Finding
from annotation.segmenters.litemedsam import BODY as LITEMEDSAM
from annotation.segmenters.litemedsam import BoxAnswer, LiteMedSam
from annotation.segmenters.points import grow_from_points
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    PointsPrompt,
    Prompt,
    Segmentation,
    SegmenterBody,
)

_RULES_VERSION = "1"
RULES = SegmenterBody("intensity rules (no model)", _RULES_VERSION, None, is_demonstration=True)
REFINED_RULES = SegmenterBody(
    "intensity rules, outlined by LiteMedSAM", _RULES_VERSION, LITEMEDSAM.sha256, is_demonstration=True
)
GROWING = SegmenterBody("region growing rules (no model)", _RULES_VERSION, None, is_demonstration=True)


class EmbeddedSegmenter:
    """LiteMedSAM for boxes, region growing for points, rules for names. Safe for threads."""

    def __init__(self, model: LiteMedSam | None = None) -> None:
        self.model = model or LiteMedSam()

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        """Answer one prompt.

        Raises:
            UnusablePrompt: If the box or the points cannot be meant.
            UnknownConcept: If there is no rule for the name in such a picture.
            ToolError: If the picture lacks what the rule for the name reads.
            Misconfigured: If the model's weights are absent or not the pinned ones.
        """
        started = time.perf_counter()
        match prompt:
            case BoxPrompt():
                box = prompt.usable(picture.pixels.shape[0], picture.pixels.shape[1])
                answer = self.model.outline(picture.pixels, box)
                finding, body = _of_box(answer), LITEMEDSAM
            case PointsPrompt():
                finding, body = Finding(grow_from_points(picture.pixels, prompt), is_present=True), GROWING
            case ConceptPrompt():
                finding, body = self._by_name(picture, prompt.concept)
        return Segmentation(
            mask=finding.mask,
            score=finding.score,
            is_present=finding.is_present,
            body=body,
            seconds=time.perf_counter() - started,
            grid=finding.grid,
        )

    def prepare(self, picture: CanonicalPicture) -> None:
        """Encode a picture ahead of its first box."""
        self.model.prepare(picture.pixels)

    def concepts(self, modality: str) -> tuple[str, ...]:
        """What can be found by name in pictures of this modality."""
        return concepts.known_concepts(modality)

    def bodies(self) -> tuple[SegmenterBody, ...]:
        """Who would answer: boxes, points, names by rules alone, names by rules and model."""
        return LITEMEDSAM, GROWING, RULES, REFINED_RULES

    def _by_name(self, picture: CanonicalPicture, concept: str) -> tuple[Finding, SegmenterBody]:
        def outline_box(box: tuple[float, float, float, float]) -> BoxAnswer:
            return self.model.outline(picture.pixels, box)

        finding = concepts.find(picture, concept, outline_box=outline_box)
        return finding, REFINED_RULES if concepts.is_refined(picture.modality, concept) else RULES


def _of_box(answer: BoxAnswer) -> Finding:
    """A box whose mask is empty holds nothing that the model would outline."""
    mask: NDArray[np.bool_] = answer.mask
    return Finding(mask=mask, is_present=bool(mask.any()), score=answer.predicted_iou, grid=answer.grid)
