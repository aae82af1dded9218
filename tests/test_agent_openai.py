"""The client of OpenAI-compatible servers, against a stub that speaks the wire."""

import base64
import time

import pytest

from backend.agent.openai_policy import Endpoint, OpenAIPolicy, wire_messages
from backend.agent.policy import (
    Message,
    PicturePart,
    PolicyRefused,
    PolicyUnavailable,
    SpeakLimits,
    TextPart,
)
from backend.domain.trace import PolicyBody, StopReason
from tests.openai_stub import StubOfOpenAIServer, served
from tests.test_agent_loop import go

BODY = PolicyBody(name="stub", version="1")
ASKED = (Message("system", (TextPart("sys"),)), Message("user", (TextPart("what?"),)))
CALL = ["<think>", "t", "</think>", "<tool_call>", '{"name": "zoom_in", ', '"arguments": {}}', "</tool", "_call>"]
FAKE = ["<tool_response>", "fake", "</tool_response>"] * 40


def policy_of(stub: StubOfOpenAIServer, **changes) -> OpenAIPolicy:
    return OpenAIPolicy(Endpoint(base_url=stub.base_url, model="m1", api_key="key1", **changes), body=BODY)


def speak(policy: OpenAIPolicy, *, messages=ASKED, on_preview=lambda text: None, should_stop=lambda: False, tokens=500):
    limits = SpeakLimits(tokens=tokens, seconds=60)
    return policy.speak(messages, limits=limits, on_preview=on_preview, should_stop=should_stop)


def test_a_turn_streams_with_previews_and_token_counts():
    previews = []
    with served(StubOfOpenAIServer(["<answer>", "no", "ne", "</answer>"])) as stub:
        said = speak(policy_of(stub), on_preview=previews.append)
    assert said.text == "<answer>none</answer>"
    assert said.tokens_used == 4
    assert said.token_ends == (8, 10, 12, 21)
    assert said.logprobs == (-0.25, -0.5, -0.75, -1.0)
    assert said.token_ids is None
    assert previews[-1] == "<answer>none</answer>"
    assert all("<answer>none</answer>".startswith(text) for text in previews)


def test_the_request_is_the_wires():
    with served(StubOfOpenAIServer(["<answer>x</answer>"])) as stub:
        speak(policy_of(stub, most_tokens=300), tokens=200)
    request = stub.requests[0]
    assert request["path"] == "/v1/chat/completions"
    assert request["authorization"] == "Bearer key1"
    assert (request["model"], request["max_tokens"], request["stream"]) == ("m1", 200, True)
    assert request["messages"][1] == {"role": "user", "content": [{"type": "text", "text": "what?"}]}


def test_c44_the_stream_is_closed_at_the_closing_tag():
    previews = []
    with served(StubOfOpenAIServer([*CALL, *FAKE], offers_token_ids=True)) as stub:
        said = speak(policy_of(stub), on_preview=previews.append)
        assert said.text == "".join(CALL)
        assert stub.left.wait(10)
        assert stub.sent < len(CALL) + len(FAKE)
    assert all("fake" not in text for text in previews)
    assert said.token_ids == tuple(range(100, 108))


def test_a_character_of_several_tokens_keeps_the_tokens_in_step():
    with served(StubOfOpenAIServer(["<answer>", "größer", "</answer>"])) as stub:
        said = speak(policy_of(stub))
    assert said.token_ends == (8, 14, 23)


def test_pictures_go_through_no_proxy_that_the_environment_names(monkeypatch):
    with (
        served(StubOfOpenAIServer(["<answer>x</answer>"])) as proxy,
        served(StubOfOpenAIServer(["<answer>x</answer>"])) as stub,
    ):
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.base_url.removesuffix("/v1"))
            monkeypatch.setenv(name.lower(), proxy.base_url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert speak(policy_of(stub)).text == "<answer>x</answer>"
    assert (len(proxy.requests), len(stub.requests)) == (0, 1)


def test_pictures_follow_no_redirect():
    with served(StubOfOpenAIServer(["<answer>x</answer>"])) as elsewhere:
        to = f"{elsewhere.base_url}/chat/completions"
        with served(StubOfOpenAIServer([], status=307, location=to)) as stub, pytest.raises(PolicyRefused, match="307"):
            speak(policy_of(stub))
    assert elsewhere.requests == []


def test_a_server_without_logprobs_is_asked_without():
    with served(StubOfOpenAIServer(["<answer>x</answer>"], offers_logprobs=False)) as stub:
        policy = policy_of(stub)
        assert speak(policy).logprobs is None
        assert speak(policy).text == "<answer>x</answer>"
    assert ["logprobs" in request for request in stub.requests] == [True, False, False]


@pytest.mark.parametrize(("status", "error"), [(400, PolicyRefused), (401, PolicyRefused), (404, PolicyRefused)])
def test_a_refusal_is_typed(status, error):
    with served(StubOfOpenAIServer([], status=status)) as stub, pytest.raises(error, match=str(status)):
        speak(policy_of(stub))


@pytest.mark.parametrize("status", [500, 503])
def test_a_broken_server_is_unavailable(status):
    with served(StubOfOpenAIServer([], status=status)) as stub, pytest.raises(PolicyUnavailable):
        speak(policy_of(stub))


def test_nobody_listening_is_unavailable_and_names_no_address():
    with served(StubOfOpenAIServer([])) as stub:
        policy = policy_of(stub)
    with pytest.raises(PolicyUnavailable) as raised:
        speak(policy)
    assert "127.0.0.1" not in raised.value.message


def test_a_stream_that_breaks_off_is_unavailable():
    with served(StubOfOpenAIServer(CALL, breaks_after=3)) as stub, pytest.raises(PolicyUnavailable):
        speak(policy_of(stub))


def test_a_silent_server_is_given_up():
    with served(StubOfOpenAIServer(CALL, silent_after=2)) as stub, pytest.raises(PolicyUnavailable):
        speak(policy_of(stub, silence_s=0.3))


def test_a_silent_server_does_not_hold_up_a_cancel():
    begun = time.monotonic()
    with served(StubOfOpenAIServer(CALL, silent_after=2)) as stub:
        said = speak(policy_of(stub), should_stop=lambda: time.monotonic() - begun > 0.5)
        assert said.was_interrupted
        assert time.monotonic() - begun < 3
    assert said.text == "<think>t"


def test_a_run_with_a_real_wire_is_answered():
    with served(StubOfOpenAIServer(["<think>t</think>", "<answer>B", ". No</answer>"])) as stub:
        reason, sink = go(policy_of(stub))
    assert reason is StopReason.ANSWERED
    assert sink.of("AnswerGiven")[0].choice == "B"
    assert sink.of("ModelSpoke")[0].logprobs == (-0.25, -0.5, -0.75)
    picture = stub.requests[0]["messages"][1]["content"][1]["image_url"]["url"]
    assert base64.b64decode(picture.partition("base64,")[2]).startswith(b"\x89PNG")


def pictured(count: int) -> list[Message]:
    def with_picture(index):
        return TextPart("r"), PicturePart(b"png", index, 28, 28)

    first = Message("user", with_picture(1))
    rest = [
        message
        for index in range(2, count + 1)
        for message in (Message("assistant", (TextPart("a"),)), Message("tool", with_picture(index)))
    ]
    return [Message("system", (TextPart("s"),)), first, *rest]


def test_c47_of_many_pictures_the_first_and_the_newest_are_sent_and_each_left_out_has_its_line():
    wire = wire_messages(pictured(6), most_pictures=3)
    parts = [part for message in wire if message["role"] == "user" for part in message["content"]]
    assert sum(part["type"] == "image_url" for part in parts) == 3
    lines = [part["text"] for part in parts if part["type"] == "text" and "not sent again" in part["text"]]
    assert lines == [f"(Picture {index} is not sent again.)" for index in (2, 3, 4)]


def test_tool_results_are_user_turns_and_turns_of_one_role_are_one():
    wire = wire_messages(
        [
            *pictured(2),
            Message("user", (TextPart("a clinician corrects you"),)),
        ],
        most_pictures=9,
    )
    assert [message["role"] for message in wire] == ["system", "user", "assistant", "user"]
    texts = [part.get("text", "picture") for part in wire[3]["content"]]
    assert texts == ["<tool_response>", "r", "picture", "</tool_response>", "a clinician corrects you"]


def test_the_key_is_not_shown():
    assert "secret" not in repr(Endpoint(base_url="http://x/v1", model="m", api_key="secret"))
