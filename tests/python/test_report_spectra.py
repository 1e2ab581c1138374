"""The sections of spectra.json and quality.json in a real browser: charts of any shape, controls, figures that are those of the files."""

from __future__ import annotations

import copy
import json

import pytest
import spectra_data
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from test_report_support import charts, no_errors, page_of, pick, report, show, wait_for

pytest_plugins = "test_report_support"
PARTS = ("dimension", "spectra", "overlap", "positions", "reconstruction", "matrices", "cost")


def write(folder, spectra: dict | None = None, quality: dict | None = None):
    """The page of a folder with these files."""
    for name, value in (("spectra.json", spectra), ("quality.json", quality)):
        if value is not None:
            (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return page_of(folder)


@pytest.fixture(scope="session")
def spectra_page(tmp_path_factory):
    return write(tmp_path_factory.mktemp("spectra"), spectra_data.spectra(), spectra_data.quality())


def text_of(browser, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def chart_label(browser, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).get_attribute("aria-label")


def table(browser, selector: str) -> list[list[str]]:
    """The cells of the first table under the selector, with ordinary spaces."""
    return browser.execute_script(
        "return [...document.querySelector(arguments[0]).querySelector('table').querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent.replaceAll('\\u00a0', ' ')))",
        selector,
    )


def nulled(value):
    """The same shape with null for every number of a list or a named figure."""
    if isinstance(value, dict):
        return {
            key: part if key in ("positions", "pairs", "samples", "rank", "model") else nulled(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [nulled(part) for part in value]
    return None if isinstance(value, (int, float)) else value


@pytest.mark.parametrize(("layers", "heads", "n"), [(1, 1, 10), (3, 5, 24), (12, 12, 128)])
def test_charts_are_drawn_for_any_shape(browser, tmp_path, layers, heads, n):
    show(
        browser,
        write(tmp_path, spectra_data.spectra(layers, heads, n, seed=n), spectra_data.quality()),
    )
    drawn = charts(browser)
    # spectrum, heads; 2 overlaps; positions, what they leave; by size, by layer, heads where there
    # are several, by query; spectrum, what pairs leave, a square for each layer; quality,
    # multiplications, time
    assert len(drawn) == 14 + layers + (heads > 1)
    for chart in drawn:
        assert chart["role"] == "img" and len(chart["label"]) > 10
        assert chart["shapes"] >= 1 and chart["texts"] >= 2 and chart["wide"] > 80, chart
    squares = browser.execute_script(
        "return [...document.querySelectorAll('#matrices .grid-small .chart')].map(c => { const b = c.getBoundingClientRect(); return b.width / b.height; })"
    )
    assert len(squares) == layers and all(0.9 < shape < 1.15 for shape in squares)
    for section in (*PARTS, "quality", "run"):
        assert len(text_of(browser, f"#{section}")) > 60
        assert browser.find_elements(By.CSS_SELECTOR, f"#{section} .absent") == []
    no_errors(browser)


def test_every_chart_has_its_numbers(browser, spectra_page):
    show(browser, spectra_page)
    without = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map(chart => chart.closest('.panel')).filter(panel => !panel.querySelector('table')).map(panel => panel.getAttribute('aria-label'))"
    )
    measures = {"Embedding cosine", "Multiplications: whole layer", "Measured time"}
    assert set(without) == measures, "those of conversions stand in one table below"
    assert browser.find_elements(By.CSS_SELECTOR, "#quality table")


def test_the_headline_is_computed(browser, spectra_page):
    data = spectra_data.spectra()
    show(browser, spectra_page)
    k = data["forms"]["scores"]["k"]["0.95"]
    text = text_of(browser, "#dimension .statement")
    assert (
        f"95 % of the variance of scores for 24 keys lies, layer by layer, in {min(k)} to {max(k)} directions"
        in text
    )
    assert f"one set for all layers takes {data['forms']['scores']['shared_k']['0.95']}." in text
    left = data["selection"]["layers"][0]["residual"]
    assert f"The best 16 positions leave {left['greedy'][16]:.0%}".replace("%", " %") in text
    assert f"would leave {100 * left['floor'][16]:.1f} %" in text
    overlap = data["forms"]["scores"]["overlap"]["16"]
    apart = [overlap[a][b] for a in range(3) for b in range(3) if a != b]
    cards = text_of(browser, "#dimension .cards")
    assert f"{100 * sum(apart) / 6:.0f} %" in cards and "chance is 67 %" in cards
    assert "nothing is saved" in cards, "16 of 24 positions cost more than all scores"
    no_errors(browser)


def test_forms_and_curves_by_keyboard(browser, spectra_page):
    data = spectra_data.spectra()
    show(browser, spectra_page)
    rows = table(browser, "#spectra .grid-2")
    assert rows[0] == ["", "90 %", "95 %", "99 %"]
    assert [row[1] for row in rows[1:]] == [
        str(k)
        for k in (*data["forms"]["scores"]["k"]["0.9"], data["forms"]["scores"]["shared_k"]["0.9"])
    ]
    assert rows[-1][0] == "All layers together"
    before = chart_label(browser, "#spectra .chart")
    radio = pick(browser, "#spectra .controls", "Scores")
    radio.send_keys(Keys.ARROW_RIGHT)
    assert pick(browser, "#spectra .controls", "Centred scores").is_selected()
    assert chart_label(browser, "#spectra .chart") != before
    assert [row[1] for row in table(browser, "#spectra .grid-2")[1:4]] == [
        str(k) for k in data["forms"]["centred"]["k"]["0.9"]
    ]
    pick(browser, "#spectra .controls", "Eigenvalues").send_keys(" ")
    assert "Variance of each direction" in text_of(browser, "#spectra")
    pick(browser, "#spectra .controls", "99\u00a0%").send_keys(" ")
    assert "Dimensions of each head for 99 %" in text_of(browser, "#spectra")
    details = browser.find_element(By.CSS_SELECTOR, "#spectra details summary")
    details.send_keys(Keys.ENTER)
    values = data["forms"]["centred"]["eigenvalues"][1]
    cells = table(browser, "#spectra details")
    assert cells[1][2] == f"{100 * values[0] / sum(values):.2g} %"
    pick(browser, "#spectra .controls", "Weights").send_keys(" ")
    assert browser.execute_script("return document.querySelector('#spectra details').open"), (
        "a table that is open stays open"
    )
    no_errors(browser)


def test_overlap_of_layers_and_of_another_model(browser, spectra_page):
    data = spectra_data.spectra()
    show(browser, spectra_page)
    assert "Random spaces would share 67 %" in text_of(browser, "#overlap")
    pick(browser, "#overlap .controls", "8").send_keys(" ")
    assert "Random spaces would share 33 %" in text_of(browser, "#overlap")
    cells = table(browser, "#overlap .panel")
    rows = data["forms"]["scores"]["overlap"]["8"]
    assert [row[1:] for row in cells[1:]] == [[f"{100 * v:.0f} %" for v in row] for row in rows]
    pick(browser, "#overlap .controls", "MiniLM-L7").send_keys(" ")
    cells = table(browser, "#overlap .panel")
    assert len(cells) == 4 and cells[0][-1] == "Its layer 4"
    pick(browser, "#overlap .controls", "Weights").send_keys(" ")
    assert "Not recorded" in text_of(browser, "#overlap")
    no_errors(browser)


def test_selected_positions_by_method_and_layer(browser, spectra_page):
    data = spectra_data.spectra()
    show(browser, spectra_page)
    marks = "return document.querySelectorAll('#positions .chart')[0].querySelectorAll('svg path[fill]:not([fill=none]):not([fill=transparent])').length"
    assert browser.execute_script(marks) >= 16 * 4
    pick(browser, "#positions .controls", "4").send_keys(" ")
    assert browser.execute_script(marks) < 16 * 4
    pick(browser, "#positions .controls", "Pivoted Cholesky").send_keys(" ")
    rows = table(browser, "#positions")
    chosen = data["selection"]["layers"][2]["positions"]["cholesky"][:4]
    assert (
        rows[3] == ["Layer 3", ", ".join(map(str, chosen))] and rows[4][0] == "All layers together"
    )
    select = Select(browser.find_element(By.ID, "pick-selection"))
    assert select.first_selected_option.text == "All layers together"
    browser.find_element(By.CSS_SELECTOR, "#positions .step[aria-label='Next layer']").send_keys(
        Keys.ENTER
    )
    assert select.first_selected_option.text == "Layer 1"
    label = browser.find_elements(By.CSS_SELECTOR, "#positions .chart")[1].get_attribute(
        "aria-label"
    )
    assert label.startswith("Variance that the positions leave: Layer 1")
    assert "PCA floor" in label and "Greedy" in label
    no_errors(browser)


def test_tooltips_tell_values(browser, spectra_page):
    data = spectra_data.spectra()
    show(browser, spectra_page)
    told = "return arguments[0].querySelector(':scope > div:last-child').textContent.replaceAll('\\u00a0', ' ')"
    curves = browser.find_elements(By.CSS_SELECTOR, "#positions .chart")[1]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", curves)
    ActionChains(browser).move_to_element(curves).perform()
    text = wait_for(lambda: browser.execute_script(told, curves))
    at = int(text.split(" ")[0])
    left = data["selection"]["shared"]["residual"]["greedy"][at]
    assert f"{at} positionsGreedy{100 * left:.0f} %" in text
    pairs = browser.find_element(By.CSS_SELECTOR, "#overlap .chart")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", pairs)
    cells = [
        cell
        for cell in pairs.find_elements(By.CSS_SELECTOR, "svg path")
        if (cell.get_attribute("fill") or "")[:1] in "#r"
    ]
    ActionChains(browser).move_to_element(cells[3 * 1 + 2]).perform()
    value = data["forms"]["scores"]["overlap"]["16"][1][2]
    expected = f"Layer 2, layer 3in common{100 * value:.0f} %"
    assert wait_for(lambda: browser.execute_script(told, pairs)) == expected
    no_errors(browser)


def test_cost_says_where_nothing_is_saved(browser, spectra_page):
    show(browser, spectra_page)
    text = text_of(browser, "#cost")
    assert "Whole layer: nothing is saved from 8 positions on." in text
    for size in (4, 8, 16):
        figure = browser.find_element(By.CSS_SELECTOR, f"#cost [aria-label='{size} positions']")
        costs = spectra_data.cost(size, 24)
        assert figure.text.count("nothing saved") == sum(share >= 1 for share in costs.values())
        assert f"{100 * costs['scores']:.0f} %" in figure.text
    no_errors(browser)


def test_null_and_missing_figures_are_not_recorded(browser, tmp_path):
    full = spectra_data.spectra()
    empty = {
        **full,
        **{
            key: nulled(full[key])
            for key in (
                "forms",
                "against",
                "selection",
                "reconstruction",
                "queries",
                "matrix",
                "cost",
            )
        },
    }
    quality = spectra_data.quality()
    for row in quality["rows"]:
        row.update({key: None for key in row if key not in ("kind", "positions")})
    show(browser, write(tmp_path, empty, quality))
    for section in (
        "dimension",
        "spectra",
        "overlap",
        "positions",
        "reconstruction",
        "matrices",
        "quality",
    ):
        assert "not recorded" in text_of(browser, f"#{section}").lower(), section
    assert text_of(browser, "#cost").count("not recorded") == 9
    shown = browser.execute_script(
        "return document.querySelector('main').textContent + [...document.querySelectorAll('[aria-label]')].map(node => node.getAttribute('aria-label')).join()"
    )
    assert not any(word in shown for word in ("NaN", "undefined", "Infinity", "null"))
    no_errors(browser)
    least = {"format": 1, "model": {"layers": 2}, "n": 4, "forms": {}}
    show(browser, write(tmp_path, least, {"format": 1, "rows": []}))
    for section in (*PARTS, "quality"):
        assert "Not recorded" in text_of(browser, f"#{section}"), section
    no_errors(browser)


def test_single_nulls_leave_gaps(browser, tmp_path):
    data = spectra_data.spectra()
    scores = data["forms"]["scores"]
    scores["eigenvalues"][1] = [None] * 24
    scores["k"]["0.9"][1] = scores["overlap"]["16"][0][2] = None
    data["selection"]["shared"]["residual"]["floor"][3] = None
    data["reconstruction"][0]["heldout_residual"][0][2] = None
    show(browser, write(tmp_path, data))
    assert "Layer 2" not in chart_label(browser, "#spectra .chart")
    assert table(browser, "#spectra .grid-2")[2][1] == "–"
    assert table(browser, "#overlap .panel")[1][3] == "–"
    no_errors(browser)


@pytest.mark.parametrize("width", [360, 390, 768, 1440])
def test_no_sideways_scrolling(browser, spectra_page, width):
    show(browser, spectra_page, width, 800)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter(node => !node.closest('.scroll, .hidden, .theme, svg') && node.getClientRects().length"
        " && node.getBoundingClientRect().right > innerWidth + 0.5).map(node => node.outerHTML.slice(0, 90))"
    )
    assert outside == []
    small = browser.execute_script(
        "return [...document.querySelectorAll('main p, main td, main dd, main dd span, main b')].filter(node => node.textContent && parseFloat(getComputedStyle(node).fontSize) < 12).length"
    )
    assert small == 0, "text below 12 px"
    no_errors(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser, spectra_page, scheme):
    show(browser, spectra_page, media={"prefers-color-scheme": scheme})
    ratios = browser.execute_script("""
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = node => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (!/, 0\\)$|transparent/.test(c) && !c.startsWith('color')) return c; } return 'rgb(255,255,255)'; };
      return [...document.querySelectorAll('main p, main h2, main h3, main dt, main dd, main th, main td, main label span, main summary, main .layer-key')]
        .filter(node => node.textContent.trim() && node.getClientRects().length)
        .map(node => { const a = light(getComputedStyle(node).color), b = light(ground(node)); return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.outerHTML.slice(0, 80)]; })
        .filter(([ratio]) => ratio < 4.5)""")
    assert ratios == []


def test_colours_follow_the_theme(browser, spectra_page):
    show(browser, spectra_page)
    pick(browser, "#spectra .controls", "Weights").send_keys(" ")
    colours = "return [document.querySelector('#spectra .layer-key .key').style.cssText, document.querySelector('#spectra .ramp').style.cssText, document.querySelector('#positions .ramp').style.cssText]"
    light = browser.execute_script(colours)
    browser.execute_script("scrollTo(0, 0)")
    browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=dark]").click()
    assert all(a != b for a, b in zip(light, browser.execute_script(colours)))
    browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=auto]").click()
    no_errors(browser)


def test_names_are_never_markup(browser, tmp_path):
    evil = "<img src=x onerror=\"document.title='broken'\">"
    data = spectra_data.spectra()
    data["model"]["name"] = data["command"] = data["against"]["model"]["name"] = evil
    data["forms"] = {evil: data["forms"]["scores"]}
    chosen = data["selection"]["shared"]
    chosen["positions"][evil], chosen["residual"][evil] = [1, 2], [1, 0.5, 0.2]
    data["reconstruction"][0]["sharing"] = evil
    data["cost"]["4"] = {evil: 0.5}
    quality = spectra_data.quality()
    quality["teacher"] = evil
    quality["rows"][0].update(kind=evil, sharing=evil, r=evil, trained=evil)
    show(browser, write(tmp_path, data, quality))
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.title == f"{evil} · Hedgerow report"
    no_errors(browser)


@pytest.mark.parametrize(
    ("change", "needle"),
    [
        (lambda data: data.pop("format"), "`format` must be 1"),
        (lambda data: data["model"].update(layers=2), "must have 2 entries, one for each layer"),
        (lambda data: data.update(n=25), "must have n entries, 25"),
        (
            lambda data: data["forms"]["weights"]["eigenvalues"][1].append(1),
            "`forms.weights.eigenvalues[1]` must have n entries, 24",
        ),
        (
            lambda data: data["forms"]["weights"].update(k={"0.9": ["few", 1, 1]}),
            "`forms.weights.k.0.9[0]` must be a number or null",
        ),
        (
            lambda data: data["selection"]["shared"]["positions"].update(even=[24]),
            "`selection.shared.positions.even[0]` must be a position from 0 to 23",
        ),
        (
            lambda data: data["matrix"]["pairs"].pop(),
            "`matrix.pairs` must have 3 entries, one for each layer",
        ),
    ],
)
def test_wrong_spectra_are_refused_by_place(tmp_path, change, needle):
    data = copy.deepcopy(spectra_data.spectra())
    change(data)
    (tmp_path / "spectra.json").write_text(json.dumps(data))
    done = report(tmp_path)
    assert done.returncode == 2 and "spectra.json" in done.stderr and needle in done.stderr, (
        done.stderr
    )
    assert not (tmp_path / "report.html").exists()
