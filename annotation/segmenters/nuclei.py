"""Nuclei stained with haematoxylin in a bright-field micrograph, by colour deconvolution. Rules, no model.

Source: Ruifrok and Johnston, Quantification of histochemical staining by color deconvolution, 2001
(`skimage.color.rgb2hed`); Otsu's threshold.
"""

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.color import rgb2hed
from skimage.filters import threshold_otsu

from annotation.segmenters.finding import BoolArray, Finding, absent
from backend.domain.segmenter import CanonicalPicture, ToolError

# A bright-field slide has bright ground between its tissue: 5 % of it is at least this bright in all three colours.
_GROUND_LEAST = 125.0
# Mean haematoxylin within and without the nuclei differ by this optical density.
_STAIN_LEAST = 0.015
# Otsu's two groups explain this much of the stain's variance. One hump (a normal distribution) gives 2/pi = 0.637.
_PARTED_LEAST = 0.66
_SHARE_LEAST, _SHARE_MOST = 0.005, 0.5
_SPECK = 25


def find_stained_nuclei(picture: CanonicalPicture) -> Finding:
    """Nuclei in blue, or "not present".

    They are accepted if the picture has the bright ground of a slide, the stain inside is stronger than outside by an
    optical density of 0.015 and forms a group of its own, and they fill 0.5 to 50 % of the picture. Touching nuclei
    are not parted.

    Raises:
        ToolError: If the picture is grey.
    """
    if picture.pixels.ndim != 3:
        raise ToolError("stained nuclei are found by their colour; this picture is grey: use a box or points")
    rows, columns = picture.pixels.shape[:2]
    ground = np.percentile(cv2.GaussianBlur(picture.pixels, (0, 0), 2.0).min(axis=2), 95)
    stain = cv2.GaussianBlur(rgb2hed(picture.pixels)[..., 0].astype(np.float32), (0, 0), 1.0)
    if ground < _GROUND_LEAST or stain.max() - stain.min() < _STAIN_LEAST:
        return absent(rows, columns)
    stained = stain > threshold_otsu(stain)
    if _parted(stain, stained) < _PARTED_LEAST:
        return absent(rows, columns)
    nuclei = ndimage.binary_opening(stained)
    labels, _ = ndimage.label(nuclei)
    keep = np.bincount(labels.ravel()) >= _SPECK
    keep[0] = False
    nuclei = ndimage.binary_fill_holes(keep[labels])
    if not _SHARE_LEAST <= nuclei.mean() <= _SHARE_MOST:
        return absent(rows, columns)
    if stain[nuclei].mean() - stain[~nuclei].mean() < _STAIN_LEAST:
        return absent(rows, columns)
    return Finding(mask=nuclei, is_present=True)


def _parted(stain: NDArray[np.float32], stained: BoolArray) -> float:
    """The share of the variance that lies between the two groups, 0 to 1 (Otsu's criterion)."""
    share = float(stained.mean())
    if share in (0.0, 1.0):
        return 0.0
    gap = float(stain[stained].mean() - stain[~stained].mean())
    return share * (1 - share) * gap**2 / float(stain.var())
