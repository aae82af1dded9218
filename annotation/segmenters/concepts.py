"""Which things can be found by name in which pictures, and the words for them."""

from collections.abc import Callable, Mapping

from annotation.segmenters import chest_xray, ct, nuclei
from annotation.segmenters.finding import Finding, OutlineBox
from backend.domain.segmenter import CanonicalPicture, UnknownConcept

Rule = Callable[[CanonicalPicture, OutlineBox], Finding]


def _unrefined(rule: Callable[[CanonicalPicture], Finding]) -> Rule:
    return lambda picture, _: rule(picture)


_CT: Mapping[str, Rule] = {
    "body": _unrefined(ct.find_body),
    "lungs": _unrefined(ct.find_lungs),
    "bone": _unrefined(ct.find_bone),
    "air": _unrefined(ct.find_air),
    "fat": _unrefined(ct.find_fat),
}
_CHEST_XRAY: Mapping[str, Rule] = {"lungs": chest_xray.find_lungs}
_PHOTOGRAPH: Mapping[str, Rule] = {"stained nuclei": _unrefined(nuclei.find_stained_nuclei)}

# By DICOM modality. Photographs and micrographs often come as plain picture files, whose modality is unknown ("").
_RULES: Mapping[str, Mapping[str, Rule]] = {
    "CT": _CT,
    "CR": _CHEST_XRAY,
    "DX": _CHEST_XRAY,
    "SM": _PHOTOGRAPH,
    "GM": _PHOTOGRAPH,
    "XC": _PHOTOGRAPH,
    "OT": _PHOTOGRAPH,
    "": _PHOTOGRAPH,
}
# Rules whose mask is the model's, in a box that the rule proposed.
_REFINED = frozenset({("CR", "lungs"), ("DX", "lungs")})

# One side's name is not among them: which side is which is not known here.
_SYNONYMS: Mapping[str, str] = {
    "lung": "lungs",
    "both lungs": "lungs",
    "lung fields": "lungs",
    "bones": "bone",
    "patient": "body",
    "body outline": "body",
    "gas": "air",
    "adipose tissue": "fat",
    "nuclei": "stained nuclei",
    "cell nuclei": "stained nuclei",
    "nucleus": "stained nuclei",
}


def known_concepts(modality: str) -> tuple[str, ...]:
    """The names that can be found in pictures of this DICOM modality, none for a modality without rules."""
    return tuple(_RULES.get(modality.upper(), {}))


def is_refined(modality: str, concept: str) -> bool:
    """Whether the mask of this concept is drawn by the model in a box that rules propose."""
    return (modality.upper(), canonical_name(concept)) in _REFINED


def canonical_name(concept: str) -> str:
    """The name that the rules use for a concept: lower case, without "the", a synonym replaced."""
    words = " ".join(concept.lower().replace("_", " ").split()).removeprefix("the ")
    return _SYNONYMS.get(words, words)


def find(picture: CanonicalPicture, concept: str, *, outline_box: OutlineBox) -> Finding:
    """Look for a concept by name.

    Raises:
        UnknownConcept: If no rule finds it in pictures of this modality; `details["known"]` lists those that one does.
        ToolError: If the picture lacks what the rule reads (HU, colour).
    """
    rule = _RULES.get(picture.modality.upper(), {}).get(canonical_name(concept))
    if rule is None:
        known = known_concepts(picture.modality)
        raise UnknownConcept(
            f"{concept[:60]!r} cannot be found by name in a picture of "
            f"{picture.modality or 'unknown modality'}; known: {', '.join(known) or 'nothing: use a box or points'}",
            known=list(known),
        )
    return rule(picture, outline_box)
