"""The parts of the page that are drawn in the browser: Gradio gives each an element, the shell fills it.

The template of a part never changes: Gradio would draw the element anew, and the viewer's canvas with it. What Python
sends goes through `value` as small JSON and is written as text.
"""

from typing import Any

import gradio as gr

SHELL = "/assets/viewer/shell.js"


class Part(gr.HTML):  # type: ignore[misc]
    """A part of the page by the name that the shell knows it by."""

    def __init__(self, value: Any = None, *, part: str = "", **kwargs: Any) -> None:
        super().__init__(
            value=value,
            html_template=f'<div class="sp-root sp-{part} sp-{part}-root"></div>',
            js_on_load=f"import('{SHELL}').then((shell) => shell.mount('{part}', element, {{props, watch, trigger}}))",
            apply_default_css=False,
            **kwargs,
        )

    def postprocess(self, value: Any) -> Any:
        """JSON as it is, for the shell."""
        return value

    def preprocess(self, payload: Any) -> Any:
        """JSON as it came."""
        return payload

    def api_info(self) -> dict[str, Any]:
        """The kind of value."""
        return {"type": "object"}


class Entrance(gr.HTML):  # type: ignore[misc]
    """Tells Python, as the event `entered`, that a view came on the screen."""

    def __init__(self, value: Any = None, *, view: str = "", **kwargs: Any) -> None:
        super().__init__(
            value=value,
            html_template="<span></span>",
            js_on_load=f"import('{SHELL}').then((shell) => shell.whenEntered('{view}', () => trigger('entered')))",
            apply_default_css=False,
            **kwargs,
        )

    def postprocess(self, value: Any) -> Any:
        """Nothing to show."""
        return value

    def preprocess(self, payload: Any) -> Any:
        """Nothing to read."""
        return payload

    def api_info(self) -> dict[str, Any]:
        """The kind of value."""
        return {"type": "object"}


def table(columns: list[str], rows: list[list[str]], *, empty: str) -> dict[str, Any]:
    """The value of a `Part` named `table`."""
    return {"columns": columns, "rows": rows, "empty": empty}


def done(text: str) -> dict[str, str]:
    """The value of a `Part` named `notice` after something worked."""
    return {"text": text, "tone": "ok"}


def problem(text: str) -> dict[str, str]:
    """The value of a `Part` named `notice` after something was refused."""
    return {"text": text, "tone": "problem"}
