"""The one page: Gradio's shell with a part for each view. The address's fragment says which view is on the screen."""

from typing import Any

import gradio as gr

from app.admin import build_admin
from app.client import ApiClient
from app.components import part


def build_pages(client: ApiClient) -> Any:
    """The Blocks to mount. All its parts are built once; the views that are not shown wait, so a switch is at once."""
    with gr.Blocks(title="Serpens", analytics_enabled=False, fill_width=True) as pages:
        part("header", elem_id="sp-header")
        part("worklist", elem_id="sp-worklist")
        part("upload", elem_id="sp-upload")
        part("case", elem_id="sp-case")
        build_admin(client)
    return pages
