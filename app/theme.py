"""Gradio in the colours of Serpens, dark in either mode, with the fonts that the computer has."""

from typing import Any

import gradio as gr

BACKGROUND, PANEL, RAISED, LINE = "#0b0d10", "#12161b", "#191e25", "#262d36"
TEXT, DIM, FAINT, ACCENT = "#e7ebf0", "#93a0ae", "#76828f", "#4cc2ff"
FIELD, BUTTON, BUTTON_LINE, BUTTON_TEXT = "#0e1216", "#15405a", "#2b5f7d", "#d5efff"

_COLOURS = {
    "body_background_fill": BACKGROUND,
    "body_text_color": TEXT,
    "body_text_color_subdued": DIM,
    "background_fill_primary": PANEL,
    "background_fill_secondary": RAISED,
    "border_color_primary": LINE,
    "border_color_accent": BUTTON_LINE,
    "color_accent_soft": "#132c3c",
    "block_background_fill": PANEL,
    "block_border_color": LINE,
    "block_label_background_fill": PANEL,
    "block_label_text_color": DIM,
    "block_title_text_color": DIM,
    "block_info_text_color": FAINT,
    "panel_background_fill": PANEL,
    "input_background_fill": FIELD,
    "input_background_fill_focus": FIELD,
    "input_border_color": LINE,
    "input_border_width": "1px",
    "input_border_color_focus": ACCENT,
    "input_placeholder_color": FAINT,
    "button_primary_background_fill": BUTTON,
    "button_primary_background_fill_hover": "#1a4f6e",
    "button_medium_text_weight": "500",
    "button_primary_border_color": BUTTON_LINE,
    "button_primary_text_color": BUTTON_TEXT,
    "button_secondary_background_fill": RAISED,
    "button_secondary_background_fill_hover": "#1e252e",
    "button_secondary_border_color": LINE,
    "button_secondary_text_color": TEXT,
    "checkbox_background_color": FIELD,
    "checkbox_background_color_selected": ACCENT,
    "checkbox_border_color": LINE,
    "checkbox_label_background_fill": RAISED,
    "checkbox_label_text_color": TEXT,
}


def serpens_theme() -> Any:
    """The theme; no font of it comes from another origin."""
    theme = gr.themes.Base(
        primary_hue=gr.themes.colors.sky,
        text_size=gr.themes.sizes.text_sm,
        radius_size=gr.themes.sizes.radius_md,
        font=["Inter", "Segoe UI", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )
    return theme.set(
        **_COLOURS, **{f"{name}_dark": value for name, value in _COLOURS.items() if "color" in name or "fill" in name}
    )
