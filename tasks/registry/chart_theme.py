"""How a figure is drawn: one palette for a light ground, one for a dark, and the same bytes each time.

No date, a fixed salt for identifiers, and matplotlib's own defaults whatever the user's settings are. Text stays
text, so that a viewer's fonts show names in any script; it is measured with a font that is wider than most.
Colours: Okabe and Ito (2008), told apart with any colour vision.
"""

import base64
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

_SETTINGS = {
    "svg.hashsalt": "discreet",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a "$" in a group's name is a "$"
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
_MEASURED_WITH, _SHOWN_WITH = b"'DejaVu Sans', sans-serif", b"system-ui, sans-serif"
_COLOUR = re.compile(rb"(?<=: )#[0-9a-f]{6}")  # in a style


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure.

    Attributes:
        name: for a file, such as `group_auc`.
        alt: the figure in words.
        light: SVG for a light ground.
        dark: the same for a dark one.
        width: in CSS pixels.
        height: in CSS pixels.
    """

    name: str
    alt: str
    light: bytes
    dark: bytes
    width: int
    height: int

    @property
    def light_uri(self) -> str:
        """The light figure as a data URI."""
        return _uri(self.light)

    @property
    def dark_uri(self) -> str:
        """The dark figure as a data URI."""
        return _uri(self.dark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """Colours of one theme; `model`, `other` and `alarm` are Okabe and Ito's."""

    ground: str
    ink: str
    quiet: str
    line: str
    model: str
    other: str
    alarm: str


LIGHT = Palette(
    ground="#ffffff", ink="#1d2328", quiet="#5d6770", line="#dcd8d0", model="#0072b2", other="#d55e00", alarm="#d55e00"
)
DARK = Palette(
    ground="#1c2024", ink="#e8eaec", quiet="#9aa5ae", line="#3a4148", model="#56b4e9", other="#e69f00", alarm="#e69f00"
)


def chart(name: str, alt: str, size: tuple[float, float], paint: Callable[[Canvas, Palette], None]) -> Chart:
    """Draw a figure.

    Args:
        name: for a file.
        alt: the figure in words.
        size: width and height in inches.
        paint: puts the figure on a canvas.
    """
    light = _svg(size, LIGHT, paint)
    return Chart(
        name=name, alt=alt, light=light, dark=_darkened(light), width=round(size[0] * 96), height=round(size[1] * 96)
    )


def _svg(size: tuple[float, float], palette: Palette, paint: Callable[[Canvas, Palette], None]) -> bytes:
    """One SVG; matplotlib's process-wide settings are as before afterwards."""
    ink = dict.fromkeys(("text.color", "axes.titlecolor"), palette.ink)
    quiet = dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), palette.quiet)
    lines = dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), palette.quiet)
    grounds = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), palette.ground)
    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")}
    out = io.BytesIO()
    settings: dict[Any, Any] = {**defaults, **_SETTINGS, **ink, **quiet, **lines, **grounds}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # of the font that measures; the viewer's shows it
        canvas = Canvas(figsize=size)
        canvas.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
        paint(canvas, palette)
        canvas.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return out.getvalue().replace(_MEASURED_WITH, _SHOWN_WITH)


def _darkened(light: bytes) -> bytes:
    """The same figure in the other palette; drawing takes most of a card's time, and is done once."""
    dark = {getattr(LIGHT, role.name).encode(): getattr(DARK, role.name).encode() for role in fields(Palette)}
    return _COLOUR.sub(lambda found: dark.get(found[0], found[0]), light)


def _uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
