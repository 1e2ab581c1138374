"""The report page in a real browser with the network off: no errors, drawn charts, controls that work."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import time

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("HEDGEROW_PROGRAM", str(PROJECT / "build" / "release" / "bin" / "hedgerow"))
FILES = ("summary.json", "metrics.jsonl", "analysis.json", "maps.json", "bench.json")
SECTIONS = ("results", "training", "fidelity", "maps", "embeddings", "speed", "run")

spec = importlib.util.spec_from_file_location("report_synthetic_run", PROJECT / "tools" / "report_synthetic_run.py")
synthetic = importlib.util.module_from_spec(spec)
spec.loader.exec_module(synthetic)


def report(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, "report", str(folder), *options], capture_output=True, text=True, timeout=120)


def page_of(folder: pathlib.Path) -> pathlib.Path:
    done = report(folder)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking",
                     "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1440,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(120)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0})
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def standard(tmp_path_factory) -> pathlib.Path:
    """A run of 6 layers and 12 heads; returns its page."""
    return page_of(synthetic.write_run(tmp_path_factory.mktemp("standard"), layers=6, heads=12, seed=1))


@pytest.fixture
def opened(browser, standard):
    return show(browser, standard)


def show(driver, page: pathlib.Path, width: int = 1440, height: int = 900, media: dict | None = None):
    """Open the page at a size and with media features (prefers-color-scheme, ...)."""
    driver.get_log("browser")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    features = {"prefers-color-scheme": "light", "prefers-reduced-motion": "reduce", **(media or {})}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [{"name": k, "value": v} for k, v in features.items()]})
    driver.get(page.as_uri())
    assert driver.execute_script("return document.documentElement.dataset.ready") == "true", driver.get_log("browser")
    return driver


def no_errors(driver) -> None:
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


def wait_for(condition, limit_s: float = 20.0):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("the page did not get there in time")


def colours_of(driver, selector: str) -> list[int]:
    """The number of different colours of each canvas."""
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(c => new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)", selector)


def charts(driver) -> list[dict]:
    return driver.execute_script(
        "return [...document.querySelectorAll('.chart')].map(node => ({label: node.getAttribute('aria-label'), role: node.getAttribute('role'),"
        "shapes: node.querySelectorAll('svg path').length, texts: node.querySelectorAll('svg text').length,"
        "wide: node.querySelector('svg')?.getBoundingClientRect().width || 0}))")


def status(driver) -> str:
    return driver.execute_script("return document.querySelector('#maps span.hidden[role=status]').textContent")


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (3, 5), (6, 12), (24, 16)])
def test_charts_are_drawn_for_any_shape(browser, tmp_path, layers, heads):
    show(browser, page_of(synthetic.write_run(tmp_path, layers=layers, heads=heads, seed=layers, steps=40)))
    drawn = charts(browser)
    # 2 stages x (loss, lr), 3 heat maps, layer means, entropy, histogram, time, memory
    assert len(drawn) == 12
    for chart in drawn:
        assert chart["role"] == "img" and len(chart["label"]) > 10
        assert chart["shapes"] >= 1 and chart["texts"] >= 3 and chart["wide"] > 200, chart
    heat = browser.execute_script("return document.querySelectorAll('#fidelity .chart')[0].querySelectorAll('svg path').length")
    assert heat >= layers * heads, "every head has a cell"
    wait_for(lambda: browser.execute_script("return document.querySelector('.atlas-scroll canvas').dataset.done") == "true")
    assert all(count > 10 for count in colours_of(browser, ".map-frame canvas")), "maps are blank"
    assert colours_of(browser, ".atlas-scroll canvas")[0] > 10
    no_errors(browser)


def test_nothing_is_fetched(browser, standard):
    browser.get_log("performance")
    show(browser, standard)
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
    show(browser, page_of(synthetic.write_run(tmp_path, layers=2, heads=2, steps=10, skip=(missing, "maps.json") if missing == "summary.json" else (missing,))))
    section = dict(zip(FILES, ("results", "training", "fidelity", "maps", "speed")))[missing]
    text = browser.find_element(By.ID, section).text
    assert "Not recorded" in text and missing in text
    for other in SECTIONS:
        assert len(browser.find_element(By.ID, other).text) > 60
    no_errors(browser)


@pytest.mark.parametrize("kept", FILES)
def test_one_file_is_enough(browser, tmp_path, kept):
    synthetic.write_run(tmp_path, layers=2, heads=3, steps=10, skip=tuple(name for name in FILES if name != kept))
    if kept == "maps.json":
        maps = json.loads((tmp_path / kept).read_text("utf-8"))
        (tmp_path / kept).write_text(json.dumps({"layers": 2, "heads": 3, **maps}), encoding="utf-8")
    show(browser, page_of(tmp_path))
    assert browser.execute_script("return document.querySelectorAll('.absent').length") >= 3
    no_errors(browser)


def test_empty_and_null_figures(browser, tmp_path):
    (tmp_path / "summary.json").write_text('{"format":1,"after":{"embedding_cosine":null,"kl":{"128":null}},"seconds":{"distil":null}}')
    (tmp_path / "metrics.jsonl").write_text('{"step":1,"loss":null}\n{"step":2,"loss":0}\n{"step":3,"loss":-1,"lr":0}\n')
    (tmp_path / "analysis.json").write_text('{"kl":{"before":[],"after":[]},"entropy":{"teacher":[[null]],"model":[[1]]},"embedding":{"cosine_histogram":{"edges":[0,1],"after":[0]},"neighbour_examples":[]}}')
    (tmp_path / "bench.json").write_text('{"rows":[{"method":"a<b>","T":64,"ms":1},{"method":"c","T":64,"ms":null,"error":"wrong <i>"}]}')
    (tmp_path / "maps.json").write_text('{"layers":1,"heads":[1],"sentences":[]}')
    show(browser, page_of(tmp_path))
    assert "Not recorded" in browser.find_element(By.ID, "results").text
    assert "a<b>" in browser.find_element(By.ID, "speed").text
    no_errors(browser)


def test_layers_may_differ_in_heads(browser, tmp_path):
    tokens, heads = ["a", "b", "c"], [1, 3]
    data = bytes(range(9 * 4))
    (tmp_path / "maps.json").write_text(json.dumps({"scale": "linear", "heads": heads, "sentences": [
        {"text": "a b c", "tokens": tokens, "size": 3, "bin": 1, "teacher": base64.b64encode(data).decode(), "model": base64.b64encode(data[::-1]).decode()}]}))
    (tmp_path / "analysis.json").write_text('{"kl":{"before":[[1],[2,3,4]],"after":[[0.5],[0.1,0.2,0.3]]}}')
    show(browser, page_of(tmp_path))
    group = browser.find_element(By.CSS_SELECTOR, ".maps")
    group.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert status(browser) == "Layer 2 of 2, head 3 of 3"
    group.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.NULL)
    text = browser.find_element(By.CSS_SELECTOR, ".readout").text
    assert f"teacher {data[27 + 1] / 255:.4f}" in text and f"converted {data[::-1][27 + 1] / 255:.4f}" in text
    group.send_keys(Keys.ARROW_UP)
    assert status(browser) == "Layer 1 of 2, head 1 of 1"
    no_errors(browser)


def test_text_is_never_markup(browser, tmp_path):
    evil = "</script><img src=x onerror=\"document.title='broken'\"><!-- ' & \u2028 \U0001f33f"
    synthetic.write_run(tmp_path, layers=2, heads=2, steps=5)
    summary = json.loads((tmp_path / "summary.json").read_text())
    summary["model"]["name"] = summary["command"] = summary["kind"] = evil
    summary["versions"] = {evil: evil}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    analysis = json.loads((tmp_path / "analysis.json").read_text())
    analysis["embedding"]["neighbour_examples"] = [{"query": evil, "teacher": [evil], "model": ["x"]}]
    (tmp_path / "analysis.json").write_text(json.dumps(analysis, ensure_ascii=False), encoding="utf-8")
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
    assert browser.execute_script("return document.querySelector('pre.command').textContent") == evil
    assert browser.execute_script("return document.querySelector('.example .query').textContent") == evil
    chart = browser.find_element(By.CSS_SELECTOR, "#speed .chart")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser).move_to_element(chart).perform()
    wait_for(lambda: "tokens" in browser.execute_script("return arguments[0].querySelector(':scope > div:last-child').textContent", chart))
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    no_errors(browser)


def test_pointing_reads_the_exact_weight(opened, standard):
    maps = json.loads((standard.parent / "maps.json").read_text("utf-8"))
    index, layer, head, row, col = 1, 2, 7, 3, 1
    sentence = maps["sentences"][index]
    size = sentence["size"]
    at = ((layer * 12 + head) * size + row) * size + col
    weights = {side: (base64.b64decode(sentence[side])[at] / 255) ** 2 for side in ("teacher", "model")}
    Select(opened.find_element(By.ID, "pick-sentence")).select_by_index(index)
    Select(opened.find_element(By.ID, "pick-layer")).select_by_index(layer)
    Select(opened.find_element(By.ID, "pick-head")).select_by_index(head)
    for frame in opened.find_elements(By.CSS_SELECTOR, ".map-frame"):
        opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", frame)
        box = opened.execute_script("const r = arguments[0].getBoundingClientRect(); return [r.left, r.top, r.width, r.height]", frame)
        label = plot_edge(opened, frame)
        cell = (box[3] - label) / size
        ActionChains(opened).move_to_element_with_offset(frame, -box[2] / 2 + label + (col + 0.5) * cell, -box[3] / 2 + label + (row + 0.5) * cell).perform()
        text = opened.find_element(By.CSS_SELECTOR, ".readout").text
        assert f"teacher {weights['teacher']:.4f}, converted {weights['model']:.4f}" in text, text
        assert sentence["tokens"][row] in text and sentence["tokens"][col] in text
        difference = weights["model"] - weights["teacher"]
        assert f"{difference:+.4f}".replace("-", "\u2212") in text
    no_errors(opened)


def plot_edge(driver, frame) -> float:
    """Width of the labels: the crossing lines start where the plot starts."""
    driver.find_element(By.CSS_SELECTOR, ".maps").send_keys(Keys.SHIFT, Keys.ARROW_DOWN, Keys.NULL)
    return driver.execute_script("return parseFloat(arguments[0].querySelector('.cross.row').style.left)", frame)


def test_keys_move_head_layer_and_reading_point(opened):
    group = opened.find_element(By.CSS_SELECTOR, ".maps")
    assert status(opened) == "Layer 1 of 6, head 1 of 12"
    before = opened.execute_script("return document.querySelector('.map-frame canvas').toDataURL()")
    for key, expected in ((Keys.ARROW_RIGHT, "Layer 1 of 6, head 2 of 12"), (Keys.ARROW_DOWN, "Layer 2 of 6, head 2 of 12"), (Keys.ARROW_LEFT, "Layer 2 of 6, head 1 of 12"),
                          (Keys.ARROW_LEFT, "Layer 2 of 6, head 12 of 12"), (Keys.ARROW_UP, "Layer 1 of 6, head 12 of 12"), (Keys.ARROW_UP, "Layer 6 of 6, head 12 of 12")):
        group.send_keys(key)
        assert status(opened) == expected
    assert opened.find_element(By.ID, "pick-head").get_attribute("value") == "11"
    assert opened.execute_script("return document.querySelector('.map-frame canvas').toDataURL()") != before
    readout = opened.find_element(By.CSS_SELECTOR, ".readout")
    assert "Point at a cell" in readout.text
    group.send_keys(Keys.SHIFT, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.NULL)
    assert "(token 2) looks at" in readout.text and "(token 2)" in readout.text.split("looks at")[1]
    group.send_keys(Keys.ESCAPE)
    assert "Point at a cell" in readout.text
    no_errors(opened)


def test_mouse_controls(opened):
    opened.find_element(By.CSS_SELECTOR, "button[aria-label='Next layer']").click()
    opened.find_element(By.CSS_SELECTOR, "button[aria-label='Previous head']").click()
    assert status(opened) == "Layer 2 of 6, head 12 of 12"
    atlas = opened.find_element(By.CSS_SELECTOR, ".atlas-scroll canvas")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", atlas)
    ActionChains(opened).move_to_element(atlas).click().perform()
    assert status(opened) in ("Layer 3 of 6, head 7 of 12", "Layer 4 of 6, head 7 of 12", "Layer 3 of 6, head 6 of 12", "Layer 4 of 6, head 6 of 12")
    for label, hidden in (("Difference", [True, True, False]), ("All three", [False, False, False])):
        pick(opened, "#maps .controls", label).click()
        assert opened.execute_script("return [...document.querySelectorAll('.map')].map(figure => figure.hidden)") == hidden
    more = opened.find_element(By.XPATH, "//section[@id='embeddings']//button")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", more)
    more.click()
    assert len(opened.find_elements(By.CSS_SELECTOR, ".example")) == 5
    no_errors(opened)


def pick(driver, scope: str, label: str):
    """The radio button of a group by its text, scrolled into view."""
    radio = driver.find_element(By.CSS_SELECTOR, scope).find_element(By.XPATH, f".//label[span[text()='{label}']]/input")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", radio)
    return radio


def test_speed_choices_by_keyboard(opened):
    before = opened.find_element(By.CSS_SELECTOR, "#speed tbody").text
    radio = pick(opened, "#speed .controls", "None")
    assert radio.is_selected()
    radio.send_keys(Keys.ARROW_RIGHT)
    assert pick(opened, "#speed .controls", "Causal").is_selected()
    after = opened.find_element(By.CSS_SELECTOR, "#speed tbody").text
    assert after != before and after.count("\n") == 6
    assert len(opened.find_elements(By.CSS_SELECTOR, "#speed .chart svg")) == 2
    no_errors(opened)


@pytest.mark.parametrize("width", [360, 390, 768, 1440, 2560])
def test_no_sideways_scrolling(browser, standard, width):
    show(browser, standard, width, 800)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter(node => !node.closest('.scroll, .atlas-scroll, .hidden, .theme, svg') && node.getClientRects().length"
        " && node.getBoundingClientRect().right > innerWidth + 0.5).map(node => node.outerHTML.slice(0, 90))")
    assert outside == []
    small = browser.execute_script("return [...document.querySelectorAll('main p, main td, main dd, main li')].filter(node => node.textContent && parseFloat(getComputedStyle(node).fontSize) < 12).length")
    assert small == 0, "text below 12 px"
    no_errors(browser)


def background(driver) -> float:
    """Lightness of the page, 0 to 1."""
    red, green, blue = (int(part) for part in re.findall(r"\d+", driver.execute_script("return getComputedStyle(document.body).backgroundColor"))[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_dark_and_light(browser, standard):
    show(browser, standard, media={"prefers-color-scheme": "dark"})
    dark_map = browser.execute_script("return document.querySelector('.map-frame canvas').toDataURL()")
    assert background(browser) < 0.15
    radio = browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=auto]")
    radio.send_keys(Keys.ARROW_RIGHT)
    assert browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=light]").is_selected()
    assert background(browser) > 0.85
    assert browser.execute_script("return document.querySelector('.map-frame canvas').toDataURL()") != dark_map
    browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=dark]").click()
    assert background(browser) < 0.15
    browser.find_element(By.CSS_SELECTOR, "input[name=theme][value=auto]").click()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]})
    wait_for(lambda: background(browser) > 0.85)
    no_errors(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser, standard, scheme):
    show(browser, standard, media={"prefers-color-scheme": scheme})
    ratios = browser.execute_script("""
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = node => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (!/, 0\\)$|transparent/.test(c) && !c.startsWith('color')) return c; } return 'rgb(255,255,255)'; };
      return [...document.querySelectorAll('main p, main h2, main h3, main dt, main dd, main th, main td, main li, main label span, main summary, footer p')]
        .filter(node => node.textContent.trim() && node.getClientRects().length)
        .map(node => { const a = light(getComputedStyle(node).color), b = light(ground(node)); return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.outerHTML.slice(0, 80)]; })
        .filter(([ratio]) => ratio < 4.5)""")
    assert ratios == []


def test_keyboard_reaches_everything_and_focus_shows(opened):
    names = opened.execute_script(
        "return [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex=\"0\"]')].filter(node => node.getClientRects().length).map(node => "
        "[node.outerHTML.slice(0, 80), (node.getAttribute('aria-label') || node.textContent.trim() || [...(node.labels || [])].map(label => label.textContent).join('')).length])")
    assert len(names) > 30
    assert [html for html, length in names if length == 0] == []
    opened.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    seen, invisible = set(), []
    for _ in range(45):
        ActionChains(opened).send_keys(Keys.TAB).perform()
        html, shown = opened.execute_script(
            "const node = document.activeElement, mark = node.matches('input[type=radio]') ? node.nextElementSibling : node;"
            "return [node.outerHTML.slice(0, 120), parseFloat(getComputedStyle(mark).outlineWidth) >= 2 && getComputedStyle(mark).outlineStyle !== 'none']")
        seen.add(html)
        if not shown and not html.startswith("<body"):
            invisible.append(html)
    assert len(seen) > 25 and invisible == []


def test_print_and_reduced_motion(browser, standard):
    show(browser, standard, media={"prefers-reduced-motion": "reduce"})
    assert browser.execute_script("return getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert browser.execute_script("return getComputedStyle(document.querySelector('.choice span')).transitionDuration") == "0s"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert browser.execute_script("return getComputedStyle(document.querySelector('.topbar')).display") == "none"
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF") and len(printed) > 50_000
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    no_errors(browser)


def test_a_map_of_4096_tokens_opens_without_freezing(browser, tmp_path):
    page = page_of(synthetic.write_run(tmp_path, layers=6, heads=12, steps=20, long=True))
    assert page.stat().st_size > 40_000_000
    start = time.monotonic()
    show(browser, page)
    assert time.monotonic() - start < 30, "opening the page"
    browser.execute_script(
        "window.longest = 0; let last = performance.now(); setInterval(() => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; }, 5)")
    Select(browser.find_element(By.ID, "pick-sentence")).select_by_index(len(synthetic.SENTENCES))
    text = browser.find_element(By.ID, "maps").text
    assert "4,096 tokens" in text and "8 × 8 tokens" in text
    group = browser.find_element(By.CSS_SELECTOR, ".maps")
    for _ in range(3):
        group.send_keys(Keys.ARROW_RIGHT)
    group.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.NULL)
    assert "(token 9 to 16) looks at" in browser.find_element(By.CSS_SELECTOR, ".readout").text
    wait_for(lambda: browser.execute_script("return document.querySelector('.atlas-scroll canvas').dataset.done") == "true", 90)
    assert all(count > 10 for count in colours_of(browser, ".map-frame canvas, .atlas-scroll canvas"))
    assert browser.execute_script("return window.longest") < 3000, "the page did not answer for 3 s"
    no_errors(browser)


@pytest.mark.parametrize(("name", "text", "rule"), [
    ("summary.json", "{", "JSON"),
    ("summary.json", '{"format": 7}', "`format` must be 1; got 7"),
    ("metrics.jsonl", '{"step": 1}\nnot json\n', "line 2"),
    ("analysis.json", '{"kl": {"before": 3, "after": "x"}}', "`kl.after`"),
    ("maps.json", '{"layers": 1, "heads": 1, "sentences": [{"text": "t", "tokens": ["t"], "size": 1, "teacher": "AA==", "model": "AAAA"}]}', "`sentences[0].model`"),
    ("bench.json", "[]", "must be an object"),
])
def test_wrong_files_are_refused_by_name(tmp_path, name, text, rule):
    synthetic.write_run(tmp_path, layers=1, heads=1, steps=3)
    (tmp_path / "report.html").write_text("old page")
    (tmp_path / name).write_text(text)
    done = report(tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert name in done.stderr and rule in done.stderr
    assert (tmp_path / "report.html").read_text() == "old page"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({*FILES, "report.html"})


def test_no_run_folder(tmp_path):
    for folder, rule in ((tmp_path / "nowhere", "must be a folder"), (tmp_path, "none of them")):
        done = report(folder)
        assert done.returncode == 2 and rule in done.stderr, done.stderr
