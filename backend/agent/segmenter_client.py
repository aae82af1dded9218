"""The segmenter process as a `Segmenter`: pictures go over once by their hash, then prompts do."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from backend.domain import segmenter_wire as wire
from backend.domain.errors import FileTooLarge, InvalidRequest, Misconfigured, NotSignedIn, PlatformError
from backend.domain.segmenter import (
    BoxPrompt,
    CanonicalPicture,
    ConceptPrompt,
    PictureUnknown,
    PointsPrompt,
    Prompt,
    Segmentation,
    SegmenterBody,
    SegmenterBusy,
    SegmenterTimeout,
    SegmenterUnavailable,
    ToolError,
    UnknownConcept,
    UnusablePrompt,
)

_BY_CODE: Mapping[str, type[PlatformError]] = {
    error.code: error
    for error in (
        FileTooLarge,
        InvalidRequest,
        Misconfigured,
        PictureUnknown,
        SegmenterBusy,
        SegmenterTimeout,
        ToolError,
        UnknownConcept,
        UnusablePrompt,
    )
}
_CONNECT_TIMEOUT_S = 2.0


class HttpSegmenter:
    """Asks a segmenter process. Safe for threads; `close` it, or use it in a `with`.

    Args:
        url: Where the process answers, without a path.
        token: The secret that it shares with us.
        timeout_s: For one answer, waiting in the process's line included.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0) -> None:
        # trust_env False: pictures never go through a proxy that the environment names.
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S),
            trust_env=False,
        )

    def segment(self, picture: CanonicalPicture, prompt: Prompt) -> Segmentation:
        """Answer one prompt.

        Raises:
            UnusablePrompt: If the box or the points cannot be meant.
            UnknownConcept: If nothing finds this by name in such a picture.
            ToolError: If the picture lacks what the rule for the name reads.
            SegmenterUnavailable: If there is no answer, or none in time.
            Misconfigured: If the token or the weights are not the right ones.
        """
        _require_usable(picture, prompt)
        response = self._with_picture(picture, "segment", json=wire.prompt_to_json(prompt))
        return wire.decode_segmentation(response.content)

    def prepare(self, picture: CanonicalPicture) -> None:
        """Have a picture encoded ahead of its first box; does not wait for it."""
        self._with_picture(picture, "prepare")

    def concepts(self, modality: str) -> tuple[str, ...]:
        """What can be found by name in pictures of this modality."""
        found = self._call("GET", "/concepts", params={"modality": modality}).json()
        return tuple(str(concept) for concept in found["concepts"])

    def bodies(self) -> tuple[SegmenterBody, ...]:
        """Who would answer."""
        found = self._call("GET", "/bodies").json()
        return tuple(wire.body_from_json(body) for body in found["bodies"])

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _with_picture(self, picture: CanonicalPicture, action: str, **request: Any) -> httpx.Response:
        """Ask about a picture; where the process does not hold it, send it and ask once more."""
        message = wire.encode_picture(picture)
        path = f"/pictures/{wire.picture_sha256(message)}/{action}"
        try:
            return self._call("POST", path, **request)
        except PictureUnknown:
            self._call("POST", "/pictures", content=message, headers={"Content-Type": wire.MEDIA_TYPE})
        try:
            return self._call("POST", path, **request)
        except PictureUnknown as error:
            raise SegmenterUnavailable("the segmenter does not keep a picture that it was just sent") from error

    def _call(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **request)
        except httpx.TimeoutException as error:
            raise SegmenterTimeout("the segmenter did not answer in time") from error
        except httpx.TransportError as error:
            raise SegmenterUnavailable(f"no segmenter answers: {type(error).__name__}") from error
        if response.is_success:
            return response
        raise _error_of(response)


def _require_usable(picture: CanonicalPicture, prompt: Prompt) -> None:
    """Refuse what cannot be meant before anything is sent; JSON has no NaN."""
    match prompt:
        case BoxPrompt() | PointsPrompt():
            prompt.usable(picture.pixels.shape[0], picture.pixels.shape[1])
        case ConceptPrompt(concept):
            if not concept.strip() or len(concept) > wire.MAX_TEXT:
                raise UnusablePrompt(f"a concept is a name of 1 to {wire.MAX_TEXT} characters, got {len(concept)}")


def _error_of(response: httpx.Response) -> PlatformError:
    if response.status_code == NotSignedIn.http_status:
        return Misconfigured("the segmenter refuses our token: SERPENS_SEGMENTER_TOKEN must be the same on both sides")
    try:
        error = response.json()["error"]
        code, message, details = str(error["code"]), str(error["message"]), dict(error["details"])
    except (ValueError, KeyError, TypeError):
        return SegmenterUnavailable(f"the segmenter answered {response.status_code} without a reason")
    kind = _BY_CODE.get(code)
    if kind is None:
        return SegmenterUnavailable(f"the segmenter answered {response.status_code} {code}")
    return kind(message, **details)
