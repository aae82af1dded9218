"""The parts of the page that are drawn in the browser: Gradio gives each an element, the shell fills it.

The template of a part never changes: Gradio would draw the element anew, and the viewer's canvas with it. What Python
sends goes through `value` as JSON text, and the shell writes it as text. These are functions and no subclasses of
`gr.HTML`: for a subclass Gradio writes a stub file beside the source whenever the module is imported.
"""

import json
from typing import Any

import gradio as gr

SHELL = "/assets/viewer/shell.js"


def part(name: str, **kwargs: Any) -> Any:
    """A part of the page by the name that the shell knows it by."""
    return gr.HTML(
        "",
        html_template=f'<div class="sp-root sp-{name}"></div>',
        js_on_load=f"import('{SHELL}').then((shell) => shell.mount('{name}', element, {{props, watch}}))",
        apply_default_css=False,
        **kwargs,
    )


def entrance(view: str, **kwargs: Any) -> Any:
    """Tells Python, as the event `entered`, that a view came on the screen."""
    return gr.HTML(
        "",
        html_template="<span></span>",
        js_on_load=f"import('{SHELL}').then((shell) => shell.whenEntered('{view}', () => trigger('entered')))",
        apply_default_css=False,
        **kwargs,
    )


def table(columns: list[str], rows: list[list[str]], *, empty: str) -> str:
    """The value of the part `table`."""
    return json.dumps({"columns": columns, "rows": rows, "empty": empty})


def done(text: str) -> str:
    """The value of the part `notice` after something worked."""
    return json.dumps({"text": text, "tone": "ok"})


def problem(text: str) -> str:
    """The value of the part `notice` after something was refused."""
    return json.dumps({"text": text, "tone": "problem"})
