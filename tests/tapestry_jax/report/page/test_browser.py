"""Pages in a real browser, headless: what is seen, clicked, typed and found. `make browser` runs them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tapestry_jax as tp
from tests.tapestry_jax.report.page import plans

sync_api = pytest.importorskip("playwright.sync_api", reason="needs `pip install tapestry-jax[browser]`")
PROGRAM = os.environ.get("TAPESTRY_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="needs Chromium: TAPESTRY_CHROMIUM names it, or the path has it"
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
MADE = {
    "mlp": lambda path: plans.mlp().show(path, "h100", grad=True, memory=True, others=[plans.gathered()]),
    "transformer": lambda path: plans.transformer().show(path),
    "pipeline": lambda path: plans.pipeline().show(path, "h100", grad=True),
    "hostile": lambda path: plans.hostile().show(path),
    "empty": lambda path: plans.empty().show(path),
    "searched": lambda path: searched().show(path, "h100", grad=True, others=[plans.gathered()]),
    "searched forwards": lambda path: searched().show(path, "h100"),
}


@cache
def searched() -> tp.Plan:
    """A plan that was searched for, with gradients, and so knows what was passed over."""
    fixed = {"embed": None, "out": None, "mlp": None}
    return tp.search(plans.mlp().graph, plans.MESH, "h100", method="exhaustive", grad=True, entries=fixed)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=PROGRAM, args=QUIET)
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open the page of a plan; whatever a browser complains of, or asks the network for, fails the test."""
    faults: list[str] = []
    contexts: list[Any] = []

    def opened(name: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1600, "height": 1000}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda told: faults.append(told.text) if told.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: faults.append(asked.url) if not asked.url.startswith("file:") else None)
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        page.goto(MADE[name](tmp_path / f"{name}.html").as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults


def boxes(page: Any) -> list[str]:
    return [each.get_attribute("data-key") for each in page.query_selector_all(".box")]


def texts(page: Any, where: str) -> list[str]:
    return [each.text_content() for each in page.query_selector_all(where)]


def test_a_page_shows_the_graph_and_an_operation_its_boxes_when_clicked(visit: Any):
    page = visit("mlp")
    assert page.title() == "mlp: plan"
    assert len(boxes(page)) == 7
    assert texts(page, ".edge text").count("batch:data mlp:model") == 2
    assert "all-reduce model" in texts(page, ".box .sends")
    page.click('[aria-label="matmul_1, operation"]')
    detail = page.inner_text("#detail")
    assert "Boxes: 8 blocks" in detail
    assert "all-reduce over model, 4.1 kB" in detail
    rows = page.locator("#detail .wide tbody tr")
    assert rows.count() == 8
    assert rows.nth(1).inner_text().split("\t")[:4] == ["data=0, model=1", "0:16", "64:128", "0:64"]
    page.keyboard.press("Escape")
    assert not page.is_visible("#detail")


def test_a_row_of_layers_unfolds_and_folds_by_a_click(visit: Any):
    page = visit("transformer")
    before = boxes(page)
    folded = page.locator(".box.alike")
    assert folded.text_content().startswith("▸ decoder/0..11 ×12")
    key = folded.get_attribute("data-key")
    folded.click()
    assert len(boxes(page)) == len(before) + 11
    title = page.locator(f'.title[data-key="{key}"]')
    assert title.get_attribute("aria-expanded") == "true"
    # It stays where it was, and so can be clicked again.
    title.click()
    assert boxes(page) == before


def test_tables_list_what_is_seen_and_unfold_too(visit: Any):
    page = visit("transformer")
    link = page.locator("#operations tr.scope .link", has_text="decoder/0..11")
    assert link.get_attribute("aria-expanded") == "false"
    rows = page.locator("#operations tbody tr").count()
    link.click()
    assert page.locator("#operations tbody tr").count() == rows + 12
    assert page.locator("#operations tr.scope .link", has_text="▸ 11").count() == 1


def test_searching_finds_unfolds_and_chooses(visit: Any):
    page = visit("transformer")
    page.keyboard.press("/")
    page.keyboard.type("7/mlp/GELU")
    assert page.text_content("#found") == "1 found"
    assert page.locator(".box.hit").count() == 1
    page.keyboard.press("Enter")
    assert page.text_content("#found") == "1 of 1"
    assert page.text_content("#detail h2") == "decoder/7/mlp/gelu"
    chosen = page.locator(".box.chosen")
    assert chosen.get_attribute("aria-label") == "decoder/7/mlp/gelu, operation"
    place, canvas = chosen.bounding_box(), page.locator("#canvas").bounding_box()
    # Beside what is known of it, not behind it.
    assert canvas["x"] <= place["x"] <= page.locator("#detail").bounding_box()["x"] - place["width"]
    assert canvas["y"] <= place["y"] <= canvas["y"] + canvas["height"]
    page.keyboard.press("Escape")
    assert page.input_value("#search") == ""


def test_the_keyboard_leads_through_the_graph(visit: Any):
    page = visit("mlp")
    # One box is a stop of the tab key: arrows lead on.
    assert page.locator('#view [tabindex="0"]').count() == 1
    page.locator('#view [tabindex="0"]').focus()
    active = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(active) == "x, input"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(active) == "matmul, operation"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.text_content("#detail h2") == page.evaluate(active).split(",")[0]
    page.keyboard.press("Escape")
    assert not page.is_visible("#detail")
    # What was chosen keeps the focus.
    assert page.evaluate(active) is not None
    scale = page.evaluate("page.picture.at.scale")
    page.keyboard.press("+")
    assert page.evaluate("page.picture.at.scale") > scale
    page.keyboard.press("0")
    assert page.evaluate("page.picture.at.scale") == pytest.approx(scale)


def test_the_wheel_zooms_and_dragging_moves(visit: Any):
    page = visit("mlp")
    before = page.evaluate("page.picture.at")
    page.mouse.move(800, 600)
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(100)
    zoomed = page.evaluate("page.picture.at")
    assert zoomed["scale"] > before["scale"]
    page.mouse.down()
    page.mouse.move(900, 640, steps=3)
    page.mouse.up()
    moved = page.evaluate("page.picture.at")
    assert (moved["x"] - zoomed["x"], moved["y"] - zoomed["y"]) == (100, 40)
    # A drag chooses nothing.
    assert not page.is_visible("#detail")


def test_hostile_names_are_texts(visit: Any):
    page = visit("hostile")
    assert page.title() == "lambda: plan"
    assert page.locator("img").count() == 0
    assert any(plans.HOSTILE in text for text in texts(page, "#operations .path"))
    page.keyboard.press("/")
    page.keyboard.type("onerror")
    page.keyboard.press("Enter")
    assert plans.HOSTILE in page.text_content("#detail h2")


def test_a_script_that_somebody_adds_does_not_run(browser: Any, tmp_path: Path):
    path = MADE["mlp"](tmp_path / "plan.html")
    text = path.read_text(encoding="utf-8")
    added = '<script>document.title="run"</script><img src="x" onerror="document.title=2">'
    path.write_text(text.replace("</body>", f"{added}</body>"), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.title() == "mlp: plan"
    page.close()


def test_dark_and_light_follow_the_system_and_a_switch(visit: Any):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit("empty", color_scheme="light"), visit("empty", color_scheme="dark")
    assert (light.evaluate(ground), dark.evaluate(ground)) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    light.click("#theme")
    dark.click("#theme")
    assert (dark.evaluate(ground), light.evaluate(ground)) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")


def test_a_run_is_drawn_lane_by_lane_and_zoomed(visit: Any):
    page = visit("pipeline")
    assert texts(page, ".lanes span")[:4] == [f"compute model={stage}" for stage in range(4)]
    pieces = page.locator("svg.times rect.computes.forward").count()
    # Four stages, four chunks, four operations each.
    assert pieces == 4 * 4 * 4
    for _ in range(6):
        page.click('[aria-label="Zoom into the run"]')
    assert page.locator("svg.times rect.computes.forward").count() < pieces


def test_sections_say_cost_memory_and_alternatives(visit: Any):
    page = visit("mlp")
    assert texts(page, "nav a") == ["Operations", "Cost", "Run", "Memory", "Alternatives"]
    assert page.locator("#cost .barred tr").count() >= 5
    assert "temporaries" in page.inner_text("#memory")
    rows = page.locator("#others tbody tr")
    assert [rows.nth(number).locator("td").first.inner_text() for number in range(2)] == ["this plan", "plan 1"]
    assert "inputs['up'], embed: - -> data" in rows.nth(1).inner_text()


@pytest.mark.parametrize("width", [400, 1600])
def test_nothing_is_wider_than_the_page(visit: Any, width: int):
    page = visit("mlp", viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.is_visible("#theme")


def test_candidates_that_were_weighed_stand_in_a_table_with_their_reasons(visit: Any):
    plan = searched()
    assert plan.weighed is not None and len(plan.weighed.candidates) > 1
    page = visit("searched")
    assert texts(page, "#others thead th")[6:] == ["memory", "not taken", "otherwise"]
    rows = page.locator("#others tbody tr")
    assert rows.count() == 2 + len(plan.weighed.candidates)
    times = [rows.nth(at).locator("td").nth(1).text_content() for at in range(rows.count())]
    assert all(times)  # all of one machine and one run, so that they may stand side by side
    for number, candidate in enumerate(plan.weighed.candidates):
        row = rows.nth(2 + number)
        assert row.locator("td").nth(0).text_content() == f"candidate {number + 1}"
        assert row.locator(".why").text_content() == candidate.why
        assert row.locator(".otherwise div").all_text_contents() == list(candidate.otherwise)
        # The table scrolls inside of the page; what stands in it is seen.
        row.scroll_into_view_if_needed()
        assert row.locator(".why").is_visible()
    widths = [float(rows.nth(at).locator(".bar rect").get_attribute("width")) for at in range(rows.count())]
    assert max(widths) == pytest.approx(100) and min(widths) > 0


def test_candidates_of_another_run_have_no_time_and_say_of_which_they_are(visit: Any):
    page = visit("searched forwards")
    rows = page.locator("#others tbody tr")
    told = [rows.nth(at).locator("td").nth(1).text_content() for at in range(rows.count())]
    assert told[0] and not any(told[1:])
    assert all(why.endswith(", on H100 with gradients") for why in texts(page, "#others .why")[1:])
