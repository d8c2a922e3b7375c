"""What may be shown on a terminal: text of strangers that nothing is obeyed of.  Pure, torch-free."""

import re

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Control characters but tabs and line ends, the marks that turn the direction of writing around (Unicode's property
# Bidi_Control), its line ends, what is there and has no width (but the joiners that Persian, Hindi and emoji need), and
# the bytes of a file's name that are no text, at which printing would fail.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class _Shown(dict[int, str]):
    """How each letter is shown, by its number, as they come: a text may be 64 MB of what is not shown as it is."""

    def __missing__(self, number: int) -> str:
        letter = chr(number)
        self[number] = ascii(letter)[1:-1] if _HOSTILE.match(letter) else letter
        return self[number]


_SHOWN = _Shown()


def harmless(text: str) -> str:
    """`text` of strangers, such as a training's log or a tag, without what would move or rewrite the terminal.

    Colours go; whatever else is no plain text is shown by its number.
    """
    return _COLOURS.sub("", text).translate(_SHOWN)
