"""The page as HTML: names of users stay texts, only our own code runs, and nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from tapestry_jax.report.page.html import data_text, html_page, own_script
from tests.tapestry_jax.report.page import plans


class Elements(HTMLParser):
    """Every element of a page, and what stands in its scripts and styles; as a browser tells them apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self.open = True

    def handle_data(self, data):
        if self.open:
            self.texts[-1] += data

    def handle_endtag(self, tag):
        self.open = False

    def all(self, tag):
        return [(attrs, text) for (own, attrs), text in zip(self.elements, self.texts, strict=True) if own == tag]


def test_names_of_users_are_data_and_no_markup():
    document = plans.told(plans.hostile)
    page, plain = (Elements(html_page(each)) for each in (document, plans.told(plans.mlp)))
    assert any(plans.HOSTILE in node["path"] for node in document["nodes"])
    # The same elements as a page of harmless names, in the same order.
    assert page.elements == plain.elements
    ((_, stored),) = [each for each in page.all("script") if each[0].get("type") == "application/json"]
    assert json.loads(stored) == json.loads(json.dumps(document))


def test_a_name_that_is_not_escaped_would_be_markup():
    # What the test above would say of a page that wrote its data as `json.dumps` does.
    damaged = html_page(plans.told(plans.hostile)).replace("\\u003c", "<").replace("\\u003e", ">")
    assert Elements(damaged).elements != Elements(html_page(plans.told(plans.mlp))).elements


def test_half_characters_and_ends_of_lines_are_escaped():
    assert data_text({"a": "\ud800</x>&\u2028"}) == '{"a":"\\ud800\\u003c/x\\u003e\\u0026\\u2028"}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        data_text({"a": float("nan")})


def test_only_code_whose_hash_stands_in_the_policy_is_on_the_page_and_nothing_may_be_loaded():
    page = Elements(html_page(plans.told(plans.mlp)))
    ((policy, _),) = [each for each in page.all("meta") if "http-equiv" in each[0]]
    rules = dict(rule.split(" ", 1) for rule in policy["content"].split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    code = [text for attrs, text in page.all("script") if "type" not in attrs]
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in code]
    assert rules["script-src"].split() == [*hashes, "'wasm-unsafe-eval'"]
    assert len(code) == 2
    ((_, style),) = page.all("style")
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in rules["style-src"]
    # The policy stands before all that it rules.
    tags = [tag for tag, _ in page.elements]
    assert tags.index("meta") < tags.index("style") < tags.index("script")
    assert not any({"src", "href", "onclick", "style"} & {*attrs} for _, attrs in page.elements)


def test_our_code_writes_texts_and_fetches_nothing():
    code = own_script()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("):
        assert word not in code
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", code)
    # Line ends are those that a browser reads, or hashes would not be those of what it has read.
    assert "\r" not in html_page(plans.told(plans.mlp))
