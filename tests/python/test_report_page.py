"""The report page in a real browser with the network off: no errors, drawn charts, controls that work."""

from __future__ import annotations

import base64
import json
import re

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_report_support import (
    FILES,
    SECTIONS,
    charts,
    colours_of,
    no_errors,
    page_of,
    pick,
    show,
    synthetic,
    wait_for,
)

pytest_plugins = "test_report_support"


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (3, 5), (6, 12), (24, 16)])
def test_charts_are_drawn_for_any_shape(browser, tmp_path, layers, heads):
    show(
        browser,
        page_of(synthetic.write_run(tmp_path, layers=layers, heads=heads, seed=layers, steps=40)),
    )
    drawn = charts(browser)
    # 2 stages x (loss, lr), alpha over training and its histogram, 3 heat maps, layer means, entropy,
    # histogram, time, memory
    assert len(drawn) == 14
    for chart in drawn:
        assert chart["role"] == "img" and len(chart["label"]) > 10
        assert chart["shapes"] >= 1 and chart["texts"] >= 3 and chart["wide"] > 200, chart
    heat = browser.execute_script(
        "return document.querySelectorAll('#fidelity .chart')[0].querySelectorAll('svg path').length"
    )
    assert heat >= layers * heads, "every head has a cell"
    wait_for(
        lambda: (
            browser.execute_script(
                "return document.querySelector('.atlas-scroll canvas').dataset.done"
            )
            == "true"
        )
    )
    assert all(count > 10 for count in colours_of(browser, ".map-frame canvas")), "maps are blank"
    assert colours_of(browser, ".atlas-scroll canvas")[0] > 10
    no_errors(browser)


def test_nothing_is_fetched(browser, either):
    browser.get_log("performance")
    show(browser, either)
    urls = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.append(message["params"]["request"]["url"])
    assert urls, "the page itself is a request"
    assert all(url.startswith(("file:", "data:")) for url in urls), urls
    no_errors(browser)


@pytest.mark.parametrize("missing", FILES)
def test_a_missing_file_is_said(browser, tmp_path, missing):
    show(
        browser,
        page_of(
            synthetic.write_run(
                tmp_path,
                layers=2,
                heads=2,
                steps=10,
                skip=(missing, "maps.json") if missing == "summary.json" else (missing,),
            )
        ),
    )
    section = dict(zip(FILES, ("results", "training", "fidelity", "maps", "speed")))[missing]
    text = browser.find_element(By.ID, section).text
    assert "Not recorded" in text and missing in text
    for other in SECTIONS:
        assert len(browser.find_element(By.ID, other).text) > 60
    no_errors(browser)


@pytest.mark.parametrize("kept", FILES)
def test_one_file_is_enough(browser, tmp_path, kept):
    synthetic.write_run(
        tmp_path,
        layers=2,
        heads=3,
        steps=10,
        skip=("head_values.jsonl", *(name for name in FILES if name != kept)),
    )
    if kept == "maps.json":
        maps = json.loads((tmp_path / kept).read_text("utf-8"))
        (tmp_path / kept).write_text(
            json.dumps({"layers": 2, "heads": 3, **maps}), encoding="utf-8"
        )
    show(browser, page_of(tmp_path))
    assert browser.execute_script("return document.querySelectorAll('.absent').length") >= 3
    no_errors(browser)


def test_empty_and_null_figures(browser, tmp_path):
    (tmp_path / "summary.json").write_text(
        '{"format":1,"after":{"embedding_cosine":null,"kl":{"128":null}},"seconds":{"distil":null}}'
    )
    (tmp_path / "metrics.jsonl").write_text(
        '{"step":1,"loss":null}\n{"step":2,"loss":0}\n{"step":3,"loss":-1,"lr":0}\n'
    )
    (tmp_path / "analysis.json").write_text(
        '{"kl":{"before":[],"after":[]},"entropy":{"teacher":[[null]],"model":[[1]]},"embedding":{"cosine_histogram":{"edges":[0,1],"after":[0]},"neighbour_examples":[]}}'
    )
    (tmp_path / "bench.json").write_text(
        '{"rows":[{"method":"a<b>","T":64,"ms":1},{"method":"c","T":64,"ms":null,"error":"wrong <i>"}]}'
    )
    (tmp_path / "maps.json").write_text('{"layers":1,"heads":[1],"sentences":[]}')
    show(browser, page_of(tmp_path))
    assert "Not recorded" in browser.find_element(By.ID, "results").text
    assert "a<b>" in browser.find_element(By.ID, "speed").text
    no_errors(browser)


def test_text_is_never_markup(browser, tmp_path):
    evil = "</script><img src=x onerror=\"document.title='broken'\"><!-- ' & \u2028 \U0001f33f"
    synthetic.write_run(tmp_path, layers=2, heads=2, steps=5)
    summary = json.loads((tmp_path / "summary.json").read_text())
    summary["model"]["name"] = summary["command"] = summary["kind"] = evil
    summary["versions"] = {evil: evil}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    analysis = json.loads((tmp_path / "analysis.json").read_text())
    analysis["embedding"]["neighbour_examples"] = [
        {"query": evil, "teacher": [evil], "model": ["x"]}
    ]
    (tmp_path / "analysis.json").write_text(
        json.dumps(analysis, ensure_ascii=False), encoding="utf-8"
    )
    maps = json.loads((tmp_path / "maps.json").read_text())
    maps["sentences"][0]["text"] = evil
    maps["sentences"][0]["tokens"][0] = evil
    (tmp_path / "maps.json").write_text(json.dumps(maps, ensure_ascii=False), encoding="utf-8")
    bench = json.loads((tmp_path / "bench.json").read_text())
    for row in bench["rows"]:
        row["method"] = evil if row["method"] == "sdpa" else row["method"]
    (tmp_path / "bench.json").write_text(json.dumps(bench))
    show(browser, page_of(tmp_path))
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.title == f"{evil} · Hedgerow report"
    assert browser.execute_script("return document.getElementById('title').textContent") == evil
    assert browser.execute_script("return document.querySelector('.sentence').textContent") == evil
    assert (
        browser.execute_script("return document.querySelector('pre.command').textContent") == evil
    )
    assert (
        browser.execute_script("return document.querySelector('.example .query').textContent")
        == evil
    )
    chart = browser.find_element(By.CSS_SELECTOR, "#speed .chart")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser).move_to_element(chart).perform()
    wait_for(
        lambda: (
            "tokens"
            in browser.execute_script(
                "return arguments[0].querySelector(':scope > div:last-child').textContent", chart
            )
        )
    )
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    no_errors(browser)


def test_speed_choices_by_keyboard(opened):
    before = opened.find_element(By.CSS_SELECTOR, "#speed tbody").text
    radio = pick(opened, "#speed .controls", "Dense")
    assert radio.is_selected()
    radio.send_keys(Keys.ARROW_RIGHT)
    assert pick(opened, "#speed .controls", "Causal").is_selected()
    after = opened.find_element(By.CSS_SELECTOR, "#speed tbody").text
    assert after != before and after.count("\n") == 6
    assert len(opened.find_elements(By.CSS_SELECTOR, "#speed .chart svg")) == 2
    no_errors(opened)


def test_the_baseline_of_rows_is_charted(browser, tmp_path):
    rows = [
        {
            "method": "hedgehog",
            "mask": "causal",
            "step": "forward",
            "T": length,
            "heads": 12,
            "head_dim": width,
            "ms": length / 1000,
            "sdpa_ms": length / 250,
            "ratio": 0.25,
        }
        for length in (64, 128, 256)
        for width in (32, 64)
    ]
    (tmp_path / "bench.json").write_text(json.dumps({"rows": rows}))
    show(browser, page_of(tmp_path))
    heads = [
        cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#speed thead th[colspan]")
    ]
    assert heads == ["PyTorch SDPA", "Hedgehog"]
    first = [
        cell.text
        for cell in browser.find_elements(By.CSS_SELECTOR, "#speed tbody tr:first-child > *")
    ]
    assert first == ["64", "0.256 ms", "1", "–", "0.064 ms", "0.25", "–"]
    pick(browser, "#speed .controls", "12 × 64").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#speed tbody tr")) == 3
    no_errors(browser)


@pytest.mark.parametrize("width", [360, 390, 768, 1440, 2560])
def test_no_sideways_scrolling(browser, either, width):
    show(browser, either, width, 800)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter(node => !node.closest('.scroll, .atlas-scroll, .hidden, .theme, svg') && node.getClientRects().length"
        " && node.getBoundingClientRect().right > innerWidth + 0.5).map(node => node.outerHTML.slice(0, 90))"
    )
    assert outside == []
    small = browser.execute_script(
        "return [...document.querySelectorAll('main p, main td, main dd, main li')].filter(node => node.textContent && parseFloat(getComputedStyle(node).fontSize) < 12).length"
    )
    assert small == 0, "text below 12 px"
    no_errors(browser)


def background(driver) -> float:
    """Lightness of the page, 0 to 1."""
    red, green, blue = (
        int(part)
        for part in re.findall(
            r"\d+", driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        )[:3]
    )
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_dark_and_light(browser, either):
    show(browser, either, media={"prefers-color-scheme": "dark"})
    dark_map = browser.execute_script(
        "return document.querySelector('.map-frame canvas').toDataURL()"
    )
    assert background(browser) < 0.15
    radio = browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=auto]")
    radio.send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=light]").is_selected()
    assert background(browser) > 0.85
    assert (
        browser.execute_script("return document.querySelector('.map-frame canvas').toDataURL()")
        != dark_map
    )
    browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=dark]").click()
    assert background(browser) < 0.15
    browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=auto]").click()
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "light"}]},
    )
    wait_for(lambda: background(browser) > 0.85)
    no_errors(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser, either, scheme):
    show(browser, either, media={"prefers-color-scheme": scheme})
    ratios = browser.execute_script("""
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = node => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (!/, 0\\)$|transparent/.test(c) && !c.startsWith('color')) return c; } return 'rgb(255,255,255)'; };
      return [...document.querySelectorAll('main p, main h2, main h3, main dt, main dd, main th, main td, main li, main label span, main summary, footer p')]
        .filter(node => node.textContent.trim() && node.getClientRects().length)
        .map(node => { const a = light(getComputedStyle(node).color), b = light(ground(node)); return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.outerHTML.slice(0, 80)]; })
        .filter(([ratio]) => ratio < 4.5)""")
    assert ratios == []


def test_keyboard_reaches_everything_and_focus_shows(browser, either):
    opened = show(browser, either)
    names = opened.execute_script(
        "return [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex=\"0\"]')].filter(node => node.getClientRects().length).map(node => "
        "[node.outerHTML.slice(0, 80), (node.getAttribute('aria-label') || node.textContent.trim() || [...(node.labels || [])].map(label => label.textContent).join('')).length])"
    )
    assert len(names) > 30
    assert [html for html, length in names if length == 0] == []
    opened.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    seen, invisible = set(), []
    for _ in range(45):
        ActionChains(opened).send_keys(Keys.TAB).perform()
        html, shown = opened.execute_script(
            "const node = document.activeElement, mark = node.matches('input[type=radio]') ? node.nextElementSibling : node;"
            "return [node.outerHTML.slice(0, 120), parseFloat(getComputedStyle(mark).outlineWidth) >= 2 && getComputedStyle(mark).outlineStyle !== 'none']"
        )
        seen.add(html)
        if not shown and not html.startswith("<body"):
            invisible.append(html)
    assert len(seen) > 25 and invisible == []


def test_print_and_reduced_motion(browser, either):
    show(browser, either, media={"prefers-reduced-motion": "reduce"})
    assert (
        browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior")
        == "auto"
    )
    assert (
        browser.execute_script(
            "return getComputedStyle(document.querySelector('.theme span')).transitionDuration"
        )
        == "0s"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert (
        browser.execute_script("return getComputedStyle(document.querySelector('.topbar')).display")
        == "none"
    )
    printed = base64.b64decode(
        browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    )
    assert printed.startswith(b"%PDF") and len(printed) > 50_000
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    no_errors(browser)
