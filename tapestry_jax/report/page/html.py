"""The page itself: one file that holds its data, its styles and all code that it runs, and that may load nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

_SCRIPTS = ("fold.js", "layout.js", "words.js", "draw.js", "tables.js", "times.js", "detail.js", "page.js")
"""Our own scripts, in the order in which they are read."""
_LIBRARY = "viz-global.js"
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""What stands in strings of JSON alone: what HTML reads as markup, what ends a line of code, and half characters."""


def html_page(document: Mapping[str, Any]) -> str:
    """The page of a document.

    Whatever users called their operations is in the document alone, as JSON in which nothing can end its element. Only
    scripts and styles whose hashes stand in the policy are run or applied, and nothing is fetched.

    Args:
      document: as `document.document` makes it.

    Returns:
      HTML.
    """
    data = f'<script type="application/json" id="data">{data_text(document)}</script>'
    return closed_page("plan", _asset("page.css"), f"{_asset('body.html')}\n{data}", [_asset(_LIBRARY), own_script()])


def closed_page(title: str, style: str, body: str, scripts: Sequence[str] = ()) -> str:
    """A page that may load nothing, and whose styles and scripts are those that are given.

    Args:
      title: plain text.
      style: CSS.
      body: HTML, in which texts of users are escaped.
      scripts: that it runs, at its end.
    """
    policy = "; ".join(
        [
            "default-src 'none'",
            *([f"script-src {' '.join(map(_hash, scripts))} 'wasm-unsafe-eval'"] if scripts else []),
            f"style-src {_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
    ]
    code = (f"<script>{script}</script>" for script in scripts)
    return "\n".join([*head, "<body>", body, *code, "</body>", "</html>", ""])


def data_text(document: Mapping[str, Any]) -> str:
    """A document as JSON that stands inside of an element: no text in it can end the element, or a line of a script."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def own_script() -> str:
    """Our own code as one script."""
    return '"use strict";\n' + "\n".join(map(_asset, _SCRIPTS))


@cache
def _asset(name: str) -> str:
    return (resources.files("tapestry_jax.report.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
