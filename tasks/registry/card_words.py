"""How a card writes text and numbers: what is undefined is said in words, and no text passes for markup.

A non-finite number is no number: it is shown as undefined, never as "inf", "nan" or the largest float.
"""

import math
import re
from dataclasses import fields, is_dataclass
from typing import Any

from tasks.registry.card_content import CardContent, Figure

NOT_FINITE = "not a finite number"
NO_REASON = "no reason was given"
UNDEFINED = f"– {NOT_FINITE}"
_LARGEST = 1e300  # MLflow stores an infinity as 1.797e308
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_MARKDOWN = re.compile(r"([\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:]))")  # "](" is what makes a link
_AT_START = re.compile(r"^([-+=:#]|\d+(?=[.)](?:\s|$)))")
_INTERVAL = re.compile(r"(\[[^\s,]+), ([^\s,]+\])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def visible(text: str) -> str:
    """The text in one line, with control, direction-changing and unpaired characters by their code.

    >>> visible("a\\nb\\u202ec")
    'a b[U+202E]c'
    """
    return _HIDDEN.sub(lambda found: " " if found[0] in "\t\n\r\u2028\u2029" else f"[U+{ord(found[0]):04X}]", text)


def published(content: CardContent) -> CardContent:
    """The card with every text visible, and every figure finite or undefined with a reason."""
    return _published(content)


def _published(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, tuple):
        return tuple(_published(part) for part in value)
    if isinstance(value, Figure):
        return _figure(value)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{part.name: _published(getattr(value, part.name)) for part in fields(value)})
    return value


def _figure(figure: Figure) -> Figure:
    why = [visible(figure.why)] if figure.why else []
    if figure.value is not None and finite(figure.value) is None:
        why.append(NOT_FINITE)
    for side in ("lower", "upper"):
        bound = getattr(figure, side)
        if bound is not None and finite(bound) is None:
            why.append(f"{side} bound: {NOT_FINITE}")
    if figure.value is None and not why:
        why.append(NO_REASON)
    return Figure(
        value=finite(figure.value), lower=finite(figure.lower), upper=finite(figure.upper), why="; ".join(why)
    )


def finite(number: float | None) -> float | None:
    """The number, or None where it is none; what stands for an infinity is none."""
    return number if number is not None and abs(number) < _LARGEST else None  # false for NaN too


def decimal(number: float | None) -> str:
    """Three decimals; two significant digits below 0.01.

    >>> decimal(0.71249), decimal(0.0042), decimal(0.0), decimal(float("nan"))
    ('0.712', '0.0042', '0.000', '– not a finite number')
    """
    if finite(number) is None or number is None:
        return UNDEFINED
    return _signed(f"{number:.3f}" if abs(number) >= 0.01 else f"{number:.2g}" if number else "0.000")


def general(number: float | None) -> str:
    """Up to six significant digits, such as a limit or a delta."""
    return UNDEFINED if finite(number) is None else _signed(f"{number:.6g}")


def _signed(text: str) -> str:
    return f"\N{MINUS SIGN}{text[1:]}" if text.startswith("-") else text


def epsilon(number: float | None) -> str:
    """An epsilon rounded up, never down: three decimals, or two significant digits below 0.01."""
    if finite(number) is None or number is None:
        return UNDEFINED
    if number == 0 or abs(number) >= 0.01:
        return f"{math.ceil(number * 1000) / 1000:.3f}"
    digits = 1 - math.floor(math.log10(abs(number)))
    return f"{math.ceil(number * 10**digits) / 10**digits:.{digits}f}"


def bounds(figure: Figure) -> str:
    """The interval, one-sided where one side is open; empty where there is none."""
    if figure.lower is not None and figure.upper is not None:
        return f"[{decimal(figure.lower)}, {decimal(figure.upper)}]"
    if figure.upper is not None:
        return f"at most {decimal(figure.upper)}"
    return "" if figure.lower is None else f"at least {decimal(figure.lower)}"


def in_line(figure: Figure) -> str:
    """Estimate, interval and reason in one line.

    >>> in_line(Figure(value=0.7, lower=0.6, upper=0.8)), in_line(Figure(why="no positives"))
    ('0.700 [0.600, 0.800]', '– no positives')
    """
    estimate = "–" if figure.value is None else decimal(figure.value)
    why = f"({figure.why})" if figure.why and figure.value is not None else figure.why
    return " ".join(part for part in (estimate, bounds(figure), why) if part)


def unbroken(text: str) -> str:
    """The text with its intervals kept in one line."""
    return _INTERVAL.sub("\\1,\N{NO-BREAK SPACE}\\2", text)


def percent(rate: float) -> str:
    """A rate in [0, 1], in per cent to two significant digits, three from 1 % on."""
    return f"{100 * rate:.{3 if rate >= 0.01 else 2}g} %"


def share(part: float, whole: float) -> float:
    """`part` of `whole` in per cent, within [0, 100]; 100 where it cannot be told, which alarms and does not calm."""
    if finite(part) is None or finite(whole) is None or whole <= 0:
        return 100.0
    return round(min(max(part / whole, 0.0), 1.0) * 100, 1)


def within(part: float, whole: float) -> bool:
    """Whether `part` is shown to be no more than `whole`."""
    return finite(part) is not None and finite(whole) is not None and part <= whole


def markdown(text: object) -> str:
    """Text that Markdown shows as it stands, in a paragraph, a list or a table's cell.

    >>> markdown("a|b <i> `c`")
    'a\\\\|b &lt;i&gt; \\\\`c\\\\`'
    """
    line = visible(str(text)).strip()
    line = re.sub("[&<>]", lambda found: _ENTITIES[found[0]], line)
    line = _MARKDOWN.sub(r"\\\1", line)
    return _AT_START.sub(lambda found: f"{found[1]}\\" if found[1].isdigit() else f"\\{found[1]}", line)
