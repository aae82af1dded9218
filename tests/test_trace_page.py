"""The trace column in the real product: ask, watch, judge, correct, come back."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.pages_fixtures import Shoot
from tests.product import Product
from tests.trace_fixtures import *  # noqa: F403
from tests.trace_fixtures import RUN_TIMEOUT_MS, ChosenPolicy, OpenTrace, Series, WaitingPolicy

ANSWER = "<think>seen</think><answer>Nothing is there.</answer>"


def call(name: str, arguments: str, thought: str = "I look.") -> str:
    return f'<think>{thought}</think>\n<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def test_on_a_chest_xray_ask_watch_jump_judge_and_find_all_again(trace: OpenTrace, xray: Series, shoot: Shoot):
    seen = trace(xray)
    page = seen.page
    page.click(".sp-trace-empty .sp-suggestion >> nth=0")
    assert page.input_value(".sp-ask-text >> nth=0") == "Outline both lungs. Is one side smaller?"
    page.keyboard.press("Enter")
    page.wait_for_selector(".sp-step")
    shoot(seen.watched, "trace-running-1600x920")
    seen.wait_until_stopped()

    assert page.inner_text(".sp-run-row .sp-chip-demo") == "demonstration policy: rules, not a model"
    titles = page.locator(".sp-step-title").all_inner_texts()
    assert titles == [
        "Find “lungs”",
        "Zoom in",
        "Outline “lungs, region 1” in box",
        "Outline “lungs, region 2” in box",
        "Measure area",
        "Measure area",
        "Answer",
    ]
    expect(seen.step(1).locator(".sp-badge")).to_have_text("demonstration")
    expect(seen.step(3).locator(".sp-badge")).to_be_hidden()
    expect(seen.step(3).locator(".sp-facts-foot small")).to_have_text("LiteMedSAM 0.1.1")

    seen.answer.locator(".sp-cite >> nth=0").click()
    expect(seen.step(3)).to_have_attribute("aria-current", "step")
    page.wait_for_selector(".sm-row[aria-current]")
    shoot(seen.watched, "trace-step-1600x920")

    page.keyboard.press("r")
    seen.step(1).get_by_role("button", name="Comment on step 1").click()
    seen.step(1).locator("textarea").fill("both found, as they are")
    seen.step(1).get_by_role("button", name="Accept with this comment").click()
    page.click("[aria-label='Reject the thought of step 2']")
    seen.answer.click(position={"x": 200, "y": 12})
    page.keyboard.press("c")
    seen.answer.locator("textarea").fill("No: the heart explains it [s13].")
    page.keyboard.press("Control+Enter")
    page.click("text=Marks")
    page.select_option("[data-mark=outlines]", "1")
    page.click("[aria-label='Accept the whole trace']")
    seen.wait_until_saved()

    page.reload()
    seen.wait_until_stopped()
    expect(seen.step(3).locator("[data-verdict=reject]").last).to_have_text("RejectedR")
    expect(seen.step(1).locator("[data-verdict=accept]").last).to_have_text("AcceptedA")
    expect(seen.step(1).locator(".sp-step-foot .sp-said")).to_have_text("Comment: both found, as they are")
    expect(seen.step(2).locator(".sp-thought [data-verdict=reject]")).to_have_attribute("aria-pressed", "true")
    expect(seen.answer.locator(".sp-step-foot .sp-said")).to_have_text("Should be: No: the heart explains it [s13].")
    expect(page.locator(".sp-verdict [data-verdict=accept]")).to_have_attribute("aria-pressed", "true")
    assert page.input_value("[data-mark=outlines]") == "1"

    stored = seen.feedback()
    assert [(one["target"], one["verdict"]) for one in stored] == [
        ("step", "reject"),
        ("step", "accept"),
        ("step", "reject"),
        ("answer", "correct"),
        ("trace", "accept"),
    ]
    assert stored[4]["marks"] == {"outlines": 1.0}
    assert all(one["seconds_spent"] > 0 for one in stored)
    seen.step(3).locator(".sp-step-title").click()
    page.wait_for_selector(".sm-row[aria-current]")
    page.wait_for_timeout(1200)  # what a mask's row flashes with is gone
    shoot(seen.watched, "trace-judged-1600x920")
    seen.watched.require_clean()


def test_a_box_is_corrected_by_dragging_and_its_new_outline_is_kept(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy, shoot: Shoot
):
    seen = trace(xray)
    page = seen.page
    with policy.saying(call("sam2", '{"index": 1, "bbox_2d": [76, 42, 236, 345], "label": "lung"}'), ANSWER):
        seen.ask("Outline the lung.")
    seen.step(1).locator(".sp-step-title").click()
    page.keyboard.press("c")
    expect(seen.step(1).locator(".sp-dragging")).to_be_visible()
    view = next(one["payload"]["view"] for one in seen.events() if one["payload"]["kind"] == "ImageShown")
    on_frame = [edge * view["frame_width"] / view["width"] for edge in (76, 42, 236, 345)]
    corner, aim = page.evaluate(
        """(points) => { const stage = document.querySelector(".sp-stage"), { x, y } = stage.getBoundingClientRect();
                         const { camera } = stage.serpensViewer;
                         return points.map((point) => {
                           const [u, v] = camera.toView(point); return [x + u, y + v]; }); }""",
        [on_frame[2:], [on_frame[2] + 4, on_frame[3] - 15]],
    )
    page.mouse.move(*corner)
    page.mouse.down()
    page.mouse.move(*aim, steps=4)
    page.mouse.up()
    page.wait_for_function(
        """() => [...document.querySelectorAll(".sp-side button")].some(
                   (one) => one.textContent.startsWith("Keep") && !one.disabled && one.checkVisibility())"""
    )
    shoot(seen.watched, "trace-drag-1600x920")
    page.keyboard.press("Enter")
    expect(seen.step(1).locator(".sp-step-foot .sp-said")).to_contain_text("New outline kept", timeout=RUN_TIMEOUT_MS)
    seen.wait_until_saved()
    (judged,) = seen.feedback()
    assert (judged["target"], judged["verdict"]) == ("step", "correct")
    dragged = [on_frame[0], on_frame[1], on_frame[2] + 4, on_frame[3] - 15]
    assert judged["corrected_box"] == pytest.approx(dragged, abs=0.7)
    made = next(one["payload"] for one in seen.events() if one["payload"]["kind"] == "ToolReturned")
    assert judged["corrected_mask_version_id"] not in (None, made["masks"][0]["mask_version_id"])
    sent = []
    page.on("request", lambda request: sent.append(request) if request.url.endswith("/continue") else None)
    page.reload()
    seen.wait_until_stopped()
    expect(seen.step(1).locator(".sp-step-foot .sp-said")).to_contain_text("Box moved to ")
    with policy.saying(ANSWER):
        seen.step(1).get_by_role("button", name="Continue").click()
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".sp-from-here")
        seen.wait_until_stopped()
    assert sent[0].post_data_json["frame_index"] == 0
    assert sent[0].post_data_json["box"] == judged["corrected_box"]
    seen.watched.require_clean()


def test_on_a_ct_a_step_leads_to_its_slice_and_window(trace: OpenTrace, ct: Series, shoot: Shoot):
    seen = trace(ct, width=1280, height=720)
    page = seen.page
    page.evaluate("() => document.querySelector('.sp-stage').serpensViewer.goTo(11)")
    seen.watched.wait_for_image()
    seen.ask("How dense is the bone in this slice?")
    expect(page.locator(".sp-shown-words span")).to_contain_text("slice 12 of 30")
    page.evaluate(
        """() => { const viewer = document.querySelector(".sp-stage").serpensViewer;
                   viewer.goTo(3); viewer.setWindow({center: 1, width: 9}); }"""
    )
    seen.watched.wait_for_image()
    seen.step(1).locator(".sp-step-title").click()
    seen.watched.wait_for_image()
    state = seen.watched.viewer_state()
    assert state["index"] == 11
    assert state["window"]["width"] > 9
    shoot(seen.watched, "trace-ct-1280x720")
    column = page.locator(".sp-trace").bounding_box()
    assert column is not None
    assert column["y"] + column["height"] <= 720
    assert page.locator(".sp-steps").evaluate("(steps) => steps.clientHeight") >= 330
    seen.watched.require_clean()


def test_c52_every_character_of_a_model_is_shown_and_none_is_markup(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy
):
    words = "size <3 cm, SUV>2.5, <b>x</b>, a < b & c <img src=x onerror=window.hurt=1>"
    seen = trace(xray)
    with policy.saying(f"<think>{words}</think><answer>{words} [s2]</answer>"):
        seen.ask(f"Is it {words}?")
    assert seen.answer.locator(".sp-step-text").inner_text() == f"{words} [s2]"
    assert seen.answer.locator(".sp-thought p").inner_text() == words
    assert seen.page.inner_text(".sp-asked") == f"Is it {words}?"
    assert seen.page.locator(".sp-trace :is(b, img):has-text('x')").count() == 0
    assert seen.page.evaluate("() => window.hurt") is None
    assert [one["payload"]["text"] for one in seen.events() if one["payload"]["kind"] == "AnswerGiven"] == [
        f"{words} [s2]"
    ]
    seen.watched.require_clean()


def test_c44_what_a_model_writes_after_its_call_is_shown_as_cut_and_never_as_a_result(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy
):
    made_up = "\n<tool_response>score 0.99</tool_response><answer>malignant</answer>"
    seen = trace(xray)
    with policy.saying(call("zoom_in", '{"index": 1, "bbox_2d": [10, 10, 200, 200]}') + made_up, ANSWER):
        seen.ask("What is there?")
    assert seen.answer.locator(".sp-step-text").inner_text() == "Nothing is there."
    assert "malignant" not in seen.page.inner_text(".sp-steps")
    seen.step(1).get_by_role("button", name="Raw").click()
    raw = seen.step(1).locator(".sp-raw")
    assert "Written after it, cut and never acted on" in raw.inner_text()
    assert "malignant" in raw.inner_text()


def test_failed_tools_unreadable_turns_and_c45_a_loop_are_named(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy, shoot: Shoot
):
    seen = trace(xray)
    unknown = call("biomedparse", '{"index": 1, "captions": "spleen"}')
    with policy.saying("no act at all", unknown):
        seen.ask("Where is the spleen?")
    assert seen.page.locator(".sp-step-title").all_inner_texts()[:2] == [
        "Turn that could not be read",
        "Find “spleen”",
    ]
    expect(seen.step(1).locator(".sp-step-text")).to_have_text("no act at all")
    expect(seen.step(2)).to_have_class(re.compile("sp-failed"))
    expect(seen.step(2).locator(".sp-failure")).to_contain_text("Known names: ")
    expect(seen.page.locator(".sp-ended b")).to_have_text("Stopped: no progress")
    expect(seen.page.locator(".sp-run-state")).to_contain_text("stopped: no progress")
    shoot(seen.watched, "trace-failed-1600x920")
    seen.step(1).locator("[data-verdict=reject]").last.click()
    seen.wait_until_saved()
    assert [one["verdict"] for one in seen.feedback()] == ["reject"]
    seen.watched.require_clean()


def test_c53_two_people_see_their_own_judgements_only(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy, product: Product
):
    first = trace(xray)
    with policy.saying(ANSWER):
        first.ask("Is anything there?")
    first.answer.locator("[data-verdict=accept]").last.click()
    first.wait_until_saved()
    second = trace(xray, name="reader2")
    second.wait_until_stopped()
    assert second.run_id == first.run_id
    expect(second.page.locator(".sp-asked-by")).to_contain_text("by a colleague")
    assert second.page.locator(".sp-trace [aria-pressed=true]").count() == 0
    second.answer.locator("[data-verdict=reject]").last.click()
    second.wait_until_saved()
    first.page.reload()
    first.wait_until_stopped()
    expect(first.page.locator(".sp-trace [aria-pressed=true]")).to_have_text(["AcceptedA"])
    assert [one["verdict"] for one in first.feedback("clinician")] == ["accept"]
    assert [one["verdict"] for one in first.feedback("reader2")] == ["reject"]


def test_c61_an_answer_lost_after_the_row_was_stored_makes_one_row(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy
):
    seen = trace(xray)
    with policy.saying(ANSWER):
        seen.ask("Is anything there?")
    lost = []

    def lose_the_answer(route: Route) -> None:
        if route.request.method == "POST" and len(lost) < 2:
            lost.append(route.fetch().status)
            route.abort("connectionreset")
        else:
            route.continue_()

    seen.page.route("**/feedback", lose_the_answer)
    seen.answer.locator("[data-verdict=accept]").last.click()
    expect(seen.answer.locator(".sp-save").last).to_contain_text("not saved: The server cannot be reached.")
    seen.wait_until_saved()
    assert lost == [201, 201]
    assert [one["verdict"] for one in seen.feedback()] == ["accept"]
    expect(seen.answer.locator("[data-verdict=accept]").last).to_have_attribute("aria-pressed", "true")


def test_a_judgement_that_cannot_be_saved_stays_until_it_is(trace: OpenTrace, xray: Series, policy: ChosenPolicy):
    seen = trace(xray)
    with policy.saying(ANSWER):
        seen.ask("Is anything there?")
    seen.page.route("**/feedback", lambda route: route.abort("connectionrefused"))
    seen.answer.locator("[data-verdict=accept]").last.click()
    seen.answer.locator("[data-verdict=reject]").last.click()
    expect(seen.answer.locator(".sp-step-foot [data-verdict=reject]")).to_have_attribute("aria-pressed", "true")
    seen.page.keyboard.press("n")
    expect(seen.page.locator(".sp-trace-foot > .sp-unsaved")).to_contain_text("Not everything is saved yet")
    stayed = []
    seen.page.on("dialog", lambda dialog: (stayed.append(dialog.type), dialog.dismiss()))
    seen.page.evaluate("() => { location.href = '/healthz'; }")
    seen.page.wait_for_timeout(500)
    assert stayed == ["beforeunload"]
    seen.page.unroute("**/feedback")
    seen.answer.locator(".sp-step-foot").get_by_role("button", name="Retry").click()
    seen.wait_until_saved()
    assert [one["verdict"] for one in seen.feedback()] == ["accept", "reject"]


def test_closing_the_tab_stops_nothing_and_a_preview_is_no_event(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy, product: Product
):
    seen = trace(xray)
    waiting = WaitingPolicy("<think>half a thou", ANSWER)
    with policy.being(waiting):
        seen.ask("Is anything there?", wait=False)
        expect(seen.page.locator(".sp-preview")).to_have_text("<think>half a thou")
        with product.client() as client:
            run = client.get(f"/api/series/{xray.series_id}/runs").json()["runs"][0]
        seen.page.close()
        waiting.may_speak.set()
        again = trace(xray)
        again.wait_until_stopped()
    assert again.run_id == run["id"]
    assert again.page.locator(".sp-step").count() == 1
    expect(again.page.locator(".sp-preview")).to_be_hidden()
    assert [one["sequence"] for one in again.events()] == [1, 2, 3, 4, 5]
    assert "half a thou" not in str(again.events())


def test_a_run_that_goes_on_is_cancelled(trace: OpenTrace, xray: Series, policy: ChosenPolicy):
    seen = trace(xray)
    with policy.being(WaitingPolicy("…", ANSWER)):
        seen.ask("Is anything there?", wait=False)
        expect(seen.page.locator(".sp-preview")).to_be_visible()
        seen.page.click(".sp-trace-head >> text=Stop")
        seen.wait_until_stopped()
    expect(seen.page.locator(".sp-run-state")).to_contain_text("cancelled")
    expect(seen.page.locator(".sp-ended b")).to_have_text("Cancelled")
    seen.watched.require_clean()


def test_continue_from_a_step_opens_a_run_below_the_steps_before(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy, shoot: Shoot
):
    seen = trace(xray)
    with policy.saying(
        call("zoom_in", '{"index": 1, "bbox_2d": [10, 10, 200, 200]}'),
        "<think>enough</think><answer>Something [p5], now [s4].</answer>",
    ):
        seen.ask("Is anything there?")
        parent = seen.run_id
        seen.step(1).get_by_role("button", name="Continue").click()
        seen.step(1).locator("textarea").fill("Look lower.")
        seen.page.keyboard.press("Control+Enter")
        seen.page.wait_for_selector(".sp-from-here")
        seen.wait_until_stopped()
    assert seen.run_id != parent
    assert seen.page.locator(".sp-step.sp-parent .sp-step-title").all_inner_texts() == ["Zoom in"]
    assert seen.page.locator(".sp-step:not(.sp-parent) .sp-step-title").all_inner_texts() == [
        "Correction by a person",
        "Answer",
    ]
    expect(seen.step(1).locator(".sp-step-text")).to_have_text("Look lower.")
    assert seen.page.locator(".sp-parent .sp-j[data-verdict]").count() == 0
    shoot(seen.watched, "trace-continued-1600x920")
    seen.page.click(".sp-runs")
    seen.page.click(".sp-runs-menu button >> nth=1")
    seen.wait_until_stopped()
    assert seen.run_id == parent
    seen.watched.require_clean()


def test_keys_move_and_judge_and_do_nothing_while_one_types(trace: OpenTrace, xray: Series, policy: ChosenPolicy):
    seen = trace(xray)
    with policy.saying(call("zoom_in", '{"index": 1, "bbox_2d": [10, 10, 200, 200]}'), ANSWER):
        seen.ask("Is anything there?")
    press = seen.page.keyboard.press
    press("j")
    press("j")
    expect(seen.answer).to_have_attribute("aria-current", "step")
    press("ArrowUp")
    expect(seen.step(1)).to_have_attribute("aria-current", "step")
    press("a")
    press("Shift+R")
    seen.wait_until_saved()
    assert [one["verdict"] for one in seen.feedback()] == ["accept", "reject"]
    press("q")
    seen.page.keyboard.type("jar?")
    assert seen.page.input_value(".sp-ask-text >> nth=0") == "jar?"
    expect(seen.step(1)).to_have_attribute("aria-current", "step")
    assert len(seen.feedback()) == 2
    press("Escape")
    press("?")
    expect(seen.page.locator(".sv-help")).to_contain_text("accept, reject, correct the step")


def test_r_on_the_image_rejects_the_step_and_moves_nothing(trace: OpenTrace, xray: Series, policy: ChosenPolicy):
    seen = trace(xray)
    with policy.saying(ANSWER):
        seen.ask("Is anything there?")
    seen.page.locator(".sv-surface").click()
    seen.page.keyboard.press("+")
    zoom = seen.watched.viewer_state()["zoom"]
    seen.page.keyboard.press("r")
    expect(seen.page.locator(".sp-trace-foot > .sp-unsaved")).to_contain_text("Choose a step first")
    seen.answer.locator(".sp-step-title").click()
    seen.page.locator(".sv-surface").click()
    seen.page.keyboard.press("r")
    expect(seen.answer.locator("[data-verdict=reject]").last).to_have_attribute("aria-pressed", "true")
    seen.wait_until_saved()
    assert [one["verdict"] for one in seen.feedback()] == ["reject"]
    assert seen.watched.viewer_state()["zoom"] == zoom
    seen.page.keyboard.press("0")
    assert seen.watched.viewer_state()["zoom"] < zoom


def test_a_question_about_a_series_that_grew_is_kept_and_asked_again(
    trace: OpenTrace, xray: Series, policy: ChosenPolicy
):
    seen = trace(xray)
    words = {"code": "series_changed", "message": "series 1 has 2 frames now, it was opened with 1", "details": {}}
    sent = []

    def grew(route: Route) -> None:
        if route.request.method == "POST" and not sent:
            sent.append(route.request.post_data_json)
            route.fulfill(status=409, json={"error": words})
        else:
            route.continue_()

    seen.page.route("**/runs", grew)
    seen.page.fill(".sp-ask-text >> nth=0", "Is anything there?")
    seen.page.keyboard.press("Enter")
    expect(seen.page.locator(".sp-ask .sp-unsaved")).to_contain_text("More images came to this series")
    assert sent[0]["frame_count"] == 1
    seen.page.locator(".sp-ask").get_by_role("button", name="Open it again").click()
    seen.watched.wait_for_image()
    assert seen.page.input_value(".sp-ask-text >> nth=0") == "Is anything there?"
    with policy.saying(ANSWER):
        seen.page.press(".sp-ask-text >> nth=0", "Enter")
        seen.page.wait_for_function("() => document.querySelector('.sp-ask-text').value === ''")
        seen.wait_until_stopped()


def test_n_goes_to_the_next_study(trace: OpenTrace, xray: Series, ct: Series, policy: ChosenPolicy):
    seen = trace(ct)
    seen.page.wait_for_selector(".sp-trace-head")
    seen.page.keyboard.press("n")
    seen.page.wait_for_function("(id) => location.hash === `#/case/${id}`", arg=xray.study_id)
    seen.watched.wait_for_image()


def test_an_engineer_sees_everything_and_judges_nothing(trace: OpenTrace, xray: Series, policy: ChosenPolicy):
    seen = trace(xray, name="engineer")
    with policy.saying(call("zoom_in", '{"index": 1, "bbox_2d": [10, 10, 200, 200]}'), ANSWER):
        seen.ask("Is anything there?")
    expect(seen.step(1).locator(".sp-picture img")).to_be_visible()
    assert seen.page.locator(".sp-trace [data-verdict]").count() == 0
    assert seen.page.locator(".sp-verdict").count() == 0
    seen.page.keyboard.press("j")
    seen.page.keyboard.press("a")
    seen.page.keyboard.press("c")
    assert seen.page.locator(".sp-editor").count() == 0
    seen.watched.require_clean()


@pytest.mark.parametrize("lost", ["events", "runs"])
def test_a_stream_that_breaks_goes_on_where_it_was(trace: OpenTrace, xray: Series, policy: ChosenPolicy, lost: str):
    seen = trace(xray)
    broken = []

    def break_once(route: Route) -> None:
        if broken:
            route.continue_()
            return
        broken.append(route.request.url)
        route.fulfill(status=503, content_type="application/json", body='{"error": {"code": "x", "message": "busy"}}')

    seen.page.route(f"**/{lost}*" if lost == "events" else "**/runs", break_once)
    with policy.saying(ANSWER):
        seen.page.fill(".sp-ask-text >> nth=0", "Is anything there?")
        seen.page.keyboard.press("Enter")
        if lost == "runs":
            expect(seen.page.locator(".sp-ask .sp-unsaved")).to_have_text("not asked: busy")
            seen.page.focus(".sp-ask-text >> nth=0")
            seen.page.keyboard.press("Enter")
        seen.page.wait_for_function("() => document.querySelector('.sp-ask-text').value === ''")
        seen.wait_until_stopped()
    assert len(broken) == 1
    assert seen.answer.count() == 1
