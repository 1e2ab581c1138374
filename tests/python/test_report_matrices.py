"""Pictures of how heads are mixed, in a real browser: drawn, readable without a pointer, in both themes and on phones."""

from __future__ import annotations

import json

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from test_report_support import no_errors, page_of, pick, report, show, synthetic, wait_for

pytest_plugins = "test_report_support"
TITLES = {
    "logits_proj": "Heads mixed before the softmax",
    "weights_proj": "Heads mixed after the softmax",
}


def mixed_run(folder, layers: int, key_heads: int, heads: int, value_heads: int):
    """The page of a run whose heads are mixed, and what its analysis.json says of them."""
    mixing = synthetic.head_matrices(
        np.random.default_rng(layers), layers, key_heads, heads, value_heads
    )
    synthetic.write_run(folder, layers=layers, heads=heads, steps=5)
    write_analysis(folder, mixing)
    return page_of(folder), mixing


def write_analysis(folder, mixing: dict) -> None:
    path = folder / "analysis.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **mixing}), encoding="utf-8")


def panel(browser, name: str):
    return browser.find_element(
        By.CSS_SELECTOR, f"#fidelity .panel[aria-label='{TITLES.get(name, name)}']"
    )


def fills(browser, chart) -> list[str]:
    """The colours of the cells of a picture, row by row."""
    return browser.execute_script(
        "return [...arguments[0].querySelectorAll('svg path')].map(p => p.getAttribute('fill')).filter(f => /^(#|rgb)/.test(f))",
        chart,
    )


@pytest.mark.parametrize(
    ("layers", "heads"),
    [(1, (1, 1, 1)), (3, (2, 5, 5)), (6, (12, 12, 12)), (2, (8, 12, 4)), (12, (24, 24, 24))],
)
def test_every_layer_has_a_picture(browser, tmp_path, layers, heads):
    page, mixing = mixed_run(tmp_path, layers, *heads)
    show(browser, page)
    for name, rows, columns in (("logits_proj", *heads[:2]), ("weights_proj", *heads[1:])):
        figures = panel(browser, name).find_elements(By.CSS_SELECTOR, ".grid-small figure")
        assert [figure.get_attribute("aria-label") for figure in figures] == [
            f"Layer {layer + 1}" for layer in range(layers)
        ]
        for layer, figure in enumerate(figures):
            chart = figure.find_element(By.CSS_SELECTOR, ".chart")
            assert len(fills(browser, chart)) == rows * columns
            label, rank = (
                chart.get_attribute("aria-label"),
                mixing["head_mixing"][name]["effective_rank"][layer],
            )
            assert (
                f"{rows} by {columns} heads" in label
                and f"effective rank {rank:.2f} of {min(rows, columns)}" in label
            )
            distance = mixing["head_mixing"][name]["identity_distance"][layer]
            assert (
                f"{distance:.3f} from the identity" if distance is not None else "heads"
            ) in figure.find_element(By.CSS_SELECTOR, ".note").text + label
            assert ("from the identity" in label) == (rows == columns)
        table = browser.execute_script(
            "return [...arguments[0].querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))",
            panel(browser, name),
        )
        assert len(table) == layers * rows
        values = mixing["head_matrices"][name][layers - 1][rows - 1]
        assert table[-1] == [f"Layer {layers}, head {rows}"] + [
            f"{value:.4f}".replace("-", "\u2212") for value in values
        ]
    no_errors(browser)


def test_one_scale_around_zero(browser, tmp_path):
    synthetic.write_run(tmp_path, layers=3, heads=2, steps=5)
    write_analysis(
        tmp_path,
        {"head_matrices": {"logits_proj": [[[2, 0], [-2, 0.5]], None, [[0.5, 0], [2, -0.5]]]}},
    )
    show(browser, page_of(tmp_path))
    for scheme in ("light", "dark"):
        browser.execute_script("scrollTo(0, 0)")
        browser.find_element(By.CSS_SELECTOR, f"input[name=theme][value={scheme}]").click()
        first, third = (
            fills(browser, chart)
            for chart in panel(browser, "logits_proj").find_elements(By.CSS_SELECTOR, ".chart")
        )
        assert first[0] == third[2] and first[1] == third[1] and first[3] == third[0], (
            "the same value has the same colour in every layer"
        )
        assert len({*first, third[3]}) == 5, "signs and sizes differ"
        ends = browser.execute_script(
            "return arguments[0].querySelector('.ramp').style.background",
            panel(browser, "logits_proj"),
        )
        rgb = (
            [int(first[0][i : i + 2], 16) for i in (1, 3, 5)]
            if first[0][0] == "#"
            else [int(part) for part in first[0][4:-1].split(",")]
        )
        assert f"rgb({', '.join(map(str, rgb))})" in ends, (
            "the largest weight stands at the end of the bar"
        )
    names = [
        figure.get_attribute("aria-label")
        for figure in panel(browser, "logits_proj").find_elements(
            By.CSS_SELECTOR, ".grid-small figure"
        )
    ]
    assert names == ["Layer 1", "Layer 3"], "a layer that mixes no heads has none"
    no_errors(browser)


def test_the_change_from_the_identity(browser, tmp_path):
    page, mixing = mixed_run(tmp_path, 2, 3, 3, 2)
    show(browser, page)
    assert panel(browser, "weights_proj").find_elements(By.CSS_SELECTOR, "input[type=radio]") == []
    own = panel(browser, "logits_proj")
    chart = own.find_element(By.CSS_SELECTOR, ".chart")
    before = fills(browser, chart)
    pick(
        browser,
        f"#fidelity .panel[aria-label='{TITLES['logits_proj']}'] .controls",
        "Change from the identity",
    ).send_keys(" ")
    assert fills(browser, chart) != before
    assert "less the identity" in own.find_element(By.CSS_SELECTOR, ".legend").text
    largest = max(
        abs(value - (i == j))
        for rows in mixing["head_matrices"]["logits_proj"]
        for i, row in enumerate(rows)
        for j, value in enumerate(row)
    )
    assert f"+{largest:.2f}" in own.find_element(By.CSS_SELECTOR, ".legend").text
    no_errors(browser)


def test_a_tooltip_names_the_heads(browser, tmp_path):
    page, mixing = mixed_run(tmp_path, 2, 4, 4, 4)
    show(browser, page)
    chart = panel(browser, "weights_proj").find_elements(By.CSS_SELECTOR, ".chart")[1]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    cells = chart.find_elements(By.CSS_SELECTOR, "svg path")
    cell = [path for path in cells if (path.get_attribute("fill") or "")[:1] in "#r"][4 * 1 + 2]
    ActionChains(browser).move_to_element(cell).perform()
    text = wait_for(
        lambda: browser.execute_script(
            "return arguments[0].querySelector(':scope > div:last-child').textContent", chart
        )
    )
    value = mixing["head_matrices"]["weights_proj"][1][1][2]
    assert text == f"Layer 2softmax head 2 \u2192 value head 3{value:+.4f}".replace(
        "-", "\u2212"
    ).replace("+0.0000", "0.0000")
    no_errors(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_pictures_fit(browser, tmp_path, width, scheme):
    page, _ = mixed_run(tmp_path, 6, 12, 12, 8)
    show(browser, page, width=width, media={"prefers-color-scheme": scheme})
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.grid-small .chart')].map(c => { const b = c.getBoundingClientRect(); return [b.left, b.right, b.height, b.width]; })"
    )
    assert len(boxes) == 12
    assert len({box[0] for box in boxes}) >= 2, "pictures stand side by side on phones too"
    for left, right, height, wide in boxes:
        assert left >= 0 and right <= width and 60 < height < 420 and wide > 120
    no_errors(browser)


def test_names_are_never_markup(browser, tmp_path):
    evil = "<img src=x onerror=\"document.title='broken'\">"
    synthetic.write_run(tmp_path, layers=1, heads=1, steps=5)
    write_analysis(tmp_path, {"head_matrices": {evil: [[[0.5]]], "empty": [None]}})
    show(browser, page_of(tmp_path))
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert len(browser.find_elements(By.CSS_SELECTOR, ".grid-small")) == 1
    no_errors(browser)


@pytest.mark.parametrize(
    ("mixing", "needle"),
    [
        (
            {"head_matrices": {"p": [[[1, 2], [3]]]}},
            "`head_matrices.p[0]` must have rows of one length",
        ),
        (
            {"head_matrices": {"p": [[[1, "x"]]]}},
            "`head_matrices.p[0][0][1]` must be a number or null",
        ),
        ({"head_matrices": {"p": [[]]}}, "`head_matrices.p[0]`"),
        ({"head_matrices": {"p": 3}}, "`head_matrices.p` must be a list"),
        (
            {"head_matrices": {"p": [[[1]], None]}, "head_mixing": {"p": {"effective_rank": [1]}}},
            "`head_mixing.p.effective_rank` must have 2 entries",
        ),
        (
            {"head_matrices": {"p": [[[1]]]}, "head_mixing": {"q": {"effective_rank": [1]}}},
            "`head_mixing.q.effective_rank`",
        ),
    ],
)
def test_wrong_matrices_are_refused_by_place(tmp_path, mixing, needle):
    (tmp_path / "analysis.json").write_text(json.dumps(mixing))
    done = report(tmp_path)
    assert done.returncode == 2 and "analysis.json" in done.stderr and needle in done.stderr, (
        done.stderr
    )
