"""Text of others for a terminal or a page, with what would act on either shown."""

from __future__ import annotations

import re

# What a terminal obeys or a line ends with (C0, DEL, C1, two separators of Unicode),
# what turns the direction of writing, and halves of characters, which no stream takes.
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


def visible(text: str, *, keep: str = "") -> str:
    r"""``text`` with control characters as Python and JSON write them.

    Those in ``keep`` stay, such as line ends on a page.

    >>> print(visible("dp-sgd\x1b[2K\nsigned by you"))
    dp-sgd\u001b[2K\u000asigned by you
    """

    def shown(found: re.Match[str]) -> str:
        one = found.group()
        return one if one in keep else f"\\u{ord(one):04x}"

    return _ACTING.sub(shown, text)
