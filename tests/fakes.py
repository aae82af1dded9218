"""Bodies that we own and that do little: what a test needs of a collaborator and no more."""

import numpy as np

from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    PointsPrompt,
    Prompt,
    Segmentation,
    SegmenterBody,
    UnknownConcept,
)


class BoxSegmenter:
    """A segmenter whose mask is the box, the points' pixels, or for "lungs" of an X-ray all that is darker than 64."""

    body = SegmenterBody("the box itself (a test's fake)", "1", None, is_demonstration=True)

    def __init__(self) -> None:
        self.prepared: list[CanonicalPicture] = []

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        """Answer one prompt."""
        rows, columns = picture.pixels.shape[:2]
        mask = np.zeros((rows, columns), dtype=np.bool_)
        match prompt:
            case BoxPrompt():
                x0, y0, x1, y1 = (round(edge) for edge in prompt.usable(rows, columns))
                mask[y0:y1, x0:x1] = True
            case PointsPrompt():
                for row, column in prompt.usable(rows, columns).inside:
                    mask[row, column] = True
            case ConceptPrompt(concept):
                known = self.concepts(picture.modality)
                if concept not in known:
                    raise UnknownConcept(f"the fake knows {known}, got {concept!r}", known=list(known))
                mask = picture.pixels < 64
        return Segmentation(mask=mask, score=None, is_present=bool(mask.any()), body=self.body, seconds=0.0)

    def prepare(self, picture: CanonicalPicture) -> None:
        """Notes the picture."""
        self.prepared.append(picture)

    def concepts(self, modality: str) -> tuple[str, ...]:
        """Lungs of an X-ray."""
        return ("lungs",) if modality in ("CR", "DX") else ()

    def bodies(self) -> tuple[SegmenterBody, ...]:
        """This one."""
        return (self.body,)
