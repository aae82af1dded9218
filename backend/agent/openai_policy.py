"""Any server that speaks OpenAI's chat completions: vLLM with a Qwen2.5-VL, the project's own small model, others.

Tool results travel as user turns inside `<tool_response>`, as Qwen's chat template writes them, because a picture in a
message of the role "tool" is refused by most servers. The answer streams; once the closing tag of its act was read the
stream is closed, which ends the generation on the server. Source: reference/methods.md 1.9, reference/vllm-cpu.md.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2
import openai
import structlog
from openai.types.chat import ChatCompletionChunk

from backend.agent.grammar import TurnReader
from backend.agent.pictures import PictureLimits
from backend.agent.policy import (
    Message,
    PicturePart,
    PolicyRefused,
    PolicyUnavailable,
    SpeakLimits,
    TextPart,
    Utterance,
)
from backend.domain.trace import PolicyBody

log = structlog.get_logger(__name__)
T = TypeVar("T")

_POLL_S = 0.1
_PREVIEW_S = 0.05


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is served and how it is asked.

    Attributes:
        base_url: Up to and including `/v1`.
        api_key: Never shown; an empty one is sent as "none", which servers without keys take.
        most_tokens: Of one turn.
        silence_s: A stream that says nothing for this long is given up.
        most_pictures: The newest so many pictures are sent, and the first one always; a line of text stands for each
            that is left out, so pictures and their places stay equal in number (casebook C47).
        wants_logprobs: Ask for log-probabilities; a server that refuses is asked once more without.
    """

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    most_tokens: int = 2_048
    temperature: float = 0.0
    connect_s: float = 10.0
    silence_s: float = 120.0
    most_pictures: int = 12
    wants_logprobs: bool = True


class OpenAIPolicy:
    """A policy behind an OpenAI-compatible endpoint."""

    def __init__(self, endpoint: Endpoint, *, body: PolicyBody, pictures: PictureLimits | None = None) -> None:
        self._endpoint = endpoint
        self.body = body
        self.pictures = pictures or PictureLimits()
        self._has_logprobs = endpoint.wants_logprobs

    def speak(
        self,
        messages: Sequence[Message],
        *,
        limits: SpeakLimits,
        on_preview: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> Utterance:
        """Say one turn. Runs an event loop of its own, so it is called from a thread that has none.

        Raises:
            PolicyUnavailable: If it cannot be reached, is overloaded, or breaks off.
            PolicyRefused: If it does not take the request.
        """
        written = wire_messages(messages, most_pictures=self._endpoint.most_pictures)
        return asyncio.run(self._speak(written, limits, on_preview, should_stop))

    async def _speak(
        self,
        written: list[dict[str, Any]],
        limits: SpeakLimits,
        on_preview: Callable[[str], None],
        should_stop: Callable[[], bool],
    ) -> Utterance:
        heard = _Heard(on_preview)
        timeout = httpx2.Timeout(self._endpoint.silence_s, connect=self._endpoint.connect_s)
        async with openai.AsyncOpenAI(
            base_url=self._endpoint.base_url,
            api_key=self._endpoint.api_key or "none",
            organization="",
            project="",
            # Pictures go to the endpoint that was named and nowhere else: through no proxy that the environment names
            # and after no redirect.
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False, follow_redirects=False, timeout=timeout),
        ) as client:
            try:
                stream = await _unless_stopped(self._open(client, written, limits), should_stop)
                async with stream:
                    chunks = aiter(stream)
                    while not heard.is_whole:
                        chunk = await _unless_stopped(_next(chunks), should_stop)
                        if chunk is None:
                            break
                        heard.hear(chunk)
            except _Stopped:
                return heard.utterance(was_interrupted=True)
            except openai.OpenAIError as error:
                raise _typed(error) from error
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                raise PolicyUnavailable(f"the policy's stream broke off: {type(error).__name__}") from error
        return heard.utterance(was_interrupted=False)

    async def _open(
        self, client: openai.AsyncOpenAI, written: list[dict[str, Any]], limits: SpeakLimits
    ) -> openai.AsyncStream[ChatCompletionChunk]:
        request: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": written,
            "max_tokens": max(1, min(limits.tokens, self._endpoint.most_tokens)),
            "temperature": self._endpoint.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._has_logprobs:
            try:
                offered: openai.AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(
                    **request, logprobs=True
                )
                return offered
            except openai.BadRequestError:
                # It may be something else that it refuses; then the second request says so.
                log.info("policy_without_logprobs", model=self._endpoint.model)
        plain: openai.AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(**request)
        self._has_logprobs = False
        return plain


class _Stopped(Exception):
    """`should_stop` said yes."""


class _Heard:
    """What came so far of one turn."""

    def __init__(self, on_preview: Callable[[str], None]) -> None:
        self._on_preview = on_preview
        self._reader = TurnReader()
        self._begun_at = time.monotonic()
        self._previewed_at = 0.0
        self._token_ends: list[int] = []
        self._logprobs: list[float] = []
        self._token_ids: list[int] = []
        self._pieces = 0
        self._tokens_counted: int | None = None

    @property
    def is_whole(self) -> bool:
        return self._reader.closed_at is not None

    def hear(self, chunk: ChatCompletionChunk) -> None:
        if chunk.usage is not None:
            self._tokens_counted = chunk.usage.completion_tokens
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        begin = len(self._reader.text)
        if choice.delta.content:
            self._pieces += 1
            self._reader.feed(choice.delta.content)
            self._preview()
        if choice.logprobs is not None and choice.logprobs.content:
            # A character may be spread over several tokens; the first of them carries it, the rest end where it does.
            spoken = b"".join(bytes(token.bytes or token.token.encode()) for token in choice.logprobs.content)
            whole, end = spoken.decode(errors="ignore"), 0
            for token in choice.logprobs.content:
                end += len(bytes(token.bytes or token.token.encode()))
                reached = len(spoken[:end].decode(errors="ignore"))
                self._token_ends.append(begin + min(reached, len(whole)))
                self._logprobs.append(token.logprob)
        # vLLM's extension; a server that does not know it sends none.
        self._token_ids.extend(getattr(choice, "token_ids", None) or ())

    def _preview(self) -> None:
        now = time.monotonic()
        if self.is_whole or now - self._previewed_at >= _PREVIEW_S:
            self._previewed_at = now
            self._on_preview(self._reader.text[: self._reader.closed_at])

    def utterance(self, *, was_interrupted: bool) -> Utterance:
        has_tokens = bool(self._token_ends)
        has_ids = has_tokens and len(self._token_ids) == len(self._token_ends)
        return Utterance(
            text=self._reader.text,
            tokens_used=max(self._tokens_counted or 0, len(self._token_ends), self._pieces),
            seconds=time.monotonic() - self._begun_at,
            token_ends=tuple(self._token_ends) if has_tokens else None,
            token_ids=tuple(self._token_ids) if has_ids else None,
            logprobs=tuple(self._logprobs) if has_tokens else None,
            was_interrupted=was_interrupted,
        )


async def _next(chunks: AsyncIterator[ChatCompletionChunk]) -> ChatCompletionChunk | None:
    return await anext(chunks, None)


async def _unless_stopped(work: Any, should_stop: Callable[[], bool]) -> Any:
    """Wait for something, but not beyond `should_stop`: a silent server is left within a tenth of a second."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            if should_stop():
                raise _Stopped
            done, _ = await asyncio.wait({task}, timeout=_POLL_S)
            if done:
                return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def _typed(error: openai.OpenAIError) -> PolicyUnavailable | PolicyRefused:
    """One of ours; the server's own words may quote the request and are left out."""
    if (
        isinstance(error, openai.APIStatusError)
        and error.status_code < 500
        and error.status_code not in (408, 409, 429)
    ):
        return PolicyRefused(f"the policy's server refused the request with status {error.status_code}")
    if isinstance(error, openai.APIStatusError):
        return PolicyUnavailable(f"the policy's server answered with status {error.status_code}")
    if isinstance(error, openai.APITimeoutError):
        return PolicyUnavailable("the policy's server did not answer in time")
    return PolicyUnavailable(f"the policy's server cannot be reached or broke off: {type(error).__name__}")


def wire_messages(messages: Sequence[Message], *, most_pictures: int) -> list[dict[str, Any]]:
    """The conversation as OpenAI's wire has it; turns of one role that follow each other become one."""
    indices = [part.index for message in messages for part in message.parts if isinstance(part, PicturePart)]
    kept = set(indices[:1]) | set(indices[len(indices) - max(0, most_pictures - 1) :] if most_pictures > 1 else ())
    wire: list[dict[str, Any]] = []
    for message in messages:
        if message.role in ("system", "assistant"):
            wire.append({"role": message.role, "content": message.text})
            continue
        content = [_wire_part(part, kept) for part in message.parts]
        if message.role == "tool":
            opened, closed = _wire_text("<tool_response>"), _wire_text("</tool_response>")
            content = [opened, *content, closed]
        if wire and wire[-1]["role"] == "user":
            wire[-1]["content"] += content
        else:
            wire.append({"role": "user", "content": content})
    return wire


def _wire_part(part: TextPart | PicturePart, kept: set[int]) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return _wire_text(part.text)
    if part.index not in kept:
        return _wire_text(f"(Picture {part.index} is not sent again.)")
    data = base64.b64encode(part.png).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _wire_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
