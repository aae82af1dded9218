"""Who speaks in a run: messages go in, one turn of text comes out. DESIGN 5 and 6."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from backend.agent.pictures import PictureLimits
from backend.domain.errors import PlatformError
from backend.domain.trace import PolicyBody


class PolicyUnavailable(PlatformError):
    """No policy answers: it cannot be reached, is overloaded, or went silent in the middle of a turn."""

    code = "policy_unavailable"
    http_status = 503


class PolicyRefused(PlatformError):
    """The policy's server answers and does not take the request: a wrong model name or key, or too long a context."""

    code = "policy_refused"
    http_status = 502


@dataclass(frozen=True, slots=True)
class TextPart:
    """Words."""

    text: str


@dataclass(frozen=True, slots=True)
class PicturePart:
    """A picture of this run: the PNG's bytes, its 1-based index and its size in pixels."""

    png: bytes
    index: int
    width: int
    height: int


Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation. A tool's result has the role "tool" and may hold a picture."""

    role: Role
    parts: tuple[TextPart | PicturePart, ...]

    @property
    def text(self) -> str:
        """All its words."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class SpeakLimits:
    """What is left for this turn."""

    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Utterance:
    """What a policy said in one turn.

    Attributes:
        text: May go on after the closing tag; the loop cuts it there.
        tokens_used: How many tokens it wrote; an estimate where the server does not count.
        token_ends: For each token, the place in `text` where it ends: what the tokens of a cut turn are found by.
        token_ids, logprobs: One for each token, None where the server gives none.
        was_interrupted: `should_stop` ended it before the turn was whole; such a turn is never stored.
    """

    text: str
    tokens_used: int
    seconds: float
    token_ends: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    was_interrupted: bool = False

    _no_tokens: ClassVar[tuple[None, None]] = (None, None)

    def tokens_until(self, end: int) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """Token ids and log-probabilities of `text[:end]`; the token that completes the closing tag is kept whole."""
        if self.token_ends is None:
            return self._no_tokens
        kept = sum(1 for begin in (0, *self.token_ends[:-1]) if begin < end) if self.token_ends else 0
        ids = None if self.token_ids is None else self.token_ids[:kept]
        return ids, None if self.logprobs is None else self.logprobs[:kept]


class Policy(Protocol):
    """One turn at a time; it holds no state of a run, so that a run can be taken up elsewhere."""

    @property
    def body(self) -> PolicyBody:
        """Which policy this is, and the space of its coordinates."""
        ...

    @property
    def pictures(self) -> PictureLimits:
        """The sizes at which it sees pictures: they are shown at exactly that size, so its pixels are ours."""
        ...

    def speak(
        self,
        messages: Sequence[Message],
        *,
        limits: SpeakLimits,
        on_preview: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> Utterance:
        """Say one turn.

        Args:
            on_preview: Told the text of this turn so far, never beyond its closing tag.
            should_stop: Asked while the policy speaks; once it says yes, the policy returns at once.

        Raises:
            PolicyUnavailable, PolicyRefused: Either ends the run.
        """
        ...
