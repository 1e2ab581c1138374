"""The page of an analysis in a real browser: charts, named heads, maps whose zeros are empty."""

from __future__ import annotations

import base64
import json

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from test_report_support import (
    charts,
    colours_of,
    no_errors,
    page_of,
    report,
    show,
    status,
    synthetic,
    wait_for,
)

pytest_plugins = "test_report_support"
SECTIONS = ("glance", "density", "learned", "spread", "roles", "maps", "run")


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (3, 5), (6, 12), (24, 16)])
def test_charts_are_drawn_for_any_shape(browser, tmp_path, layers, heads):
    show(
        browser,
        page_of(synthetic.write_analysis(tmp_path, layers=layers, heads=heads, seed=layers)),
    )
    drawn = charts(browser)
    # density: by layer, sorted, by text; alpha: heads, histogram, over training, against density where
    # there are two heads; entropy, diversity; distances
    assert len(drawn) == (10 if layers * heads > 1 else 9)
    for chart in drawn:
        assert chart["role"] == "img" and len(chart["label"]) > 10
        assert chart["shapes"] >= 1 and chart["texts"] >= 3 and chart["wide"] > 200, chart
    dots = browser.execute_script(
        "return document.querySelectorAll('#density .chart')[0].querySelectorAll('svg path').length"
    )
    assert dots >= layers * heads, "every head has a dot"
    wait_for(
        lambda: (
            browser.execute_script(
                "return document.querySelector('.atlas-scroll canvas').dataset.done"
            )
            == "true"
        )
    )
    assert all(
        count > 5 for count in colours_of(browser, ".map-frame canvas, .atlas-scroll canvas")
    )
    for section in SECTIONS:
        assert len(browser.find_element(By.ID, section).text) > 60
    no_errors(browser)


def test_zeros_are_empty_and_small_weights_are_not(browser, tmp_path):
    tokens = ["[CLS]", "a", "b", "[SEP]"]
    data = bytes([255, 0, 0, 0, 1, 254, 0, 0, 128, 0, 128, 1, 0, 0, 0, 255])
    synthetic.write_analysis(tmp_path, layers=1, heads=1)
    (tmp_path / "maps.json").write_text(
        json.dumps(
            {
                "scale": "sqrt",
                "sides": ["model"],
                "zeros": "exact",
                "heads": [1],
                "sentences": [
                    {
                        "text": "a b",
                        "tokens": tokens,
                        "size": 4,
                        "bin": 1,
                        "model": base64.b64encode(data).decode(),
                    }
                ],
            }
        )
    )
    show(browser, page_of(tmp_path))
    group = browser.find_element(By.CSS_SELECTOR, ".maps")
    group.send_keys(Keys.ESCAPE)
    for scheme in ("light", "dark"):
        browser.execute_script("scrollTo(0, 0)")
        browser.find_element(By.CSS_SELECTOR, f"input[name=theme][value={scheme}]").click()
        cells = browser.execute_script("""
            const canvas = document.querySelector('.map-frame canvas');
            const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
            const context = copy.getContext('2d', {willReadFrequently: true});
            context.drawImage(canvas, 0, 0);
            const cross = document.querySelector('.cross.row'), edge = parseFloat(cross.style.left), cell = parseFloat(cross.style.width) / 4;
            const ratio = canvas.width / canvas.clientWidth;
            return Array.from({length: 16}, (_, i) => [...context.getImageData((edge + (i % 4 + 0.5) * cell) * ratio, (edge + (Math.floor(i / 4) + 0.5) * cell) * ratio, 1, 1).data].join(','))""")
        surface = browser.execute_script("""
            const [r, g, b] = getComputedStyle(document.querySelector('.panel')).backgroundColor.match(/\\d+/g); return [r, g, b, 255].join(',')""")
        for i, byte in enumerate(data):
            assert (cells[i] == surface) == (byte == 0), (scheme, i, byte, cells[i], surface)
        far = [abs(int(a) - int(b)) for a, b in zip(cells[4].split(","), surface.split(","))]
        assert max(far) > 25, "the smallest weight is told from nothing"
        assert cells[0] != cells[8] != cells[4]
    words = browser.find_elements(By.CSS_SELECTOR, ".word")
    words[2].click()
    readout = browser.find_element(By.CSS_SELECTOR, ".readout")
    assert "b (token 3) puts weight on 3 of 4 tokens and exactly none on 1." in readout.text
    assert [
        word.get_attribute("class").split()[1:2] == ["none"]
        for word in browser.find_elements(By.CSS_SELECTOR, ".word")
    ] == [False, True, False, False]
    group.send_keys(Keys.SHIFT, Keys.ARROW_LEFT, Keys.NULL)
    assert "On a (token 2) exactly 0." in readout.text
    no_errors(browser)


def test_keys_and_controls(browser, analysis):
    show(browser, analysis)
    group = browser.find_element(By.CSS_SELECTOR, ".maps")
    assert status(browser) == "Layer 1 of 6, head 1 of 12"
    for key, expected in (
        (Keys.ARROW_RIGHT, "Layer 1 of 6, head 2 of 12"),
        (Keys.ARROW_DOWN, "Layer 2 of 6, head 2 of 12"),
        (Keys.ARROW_UP, "Layer 1 of 6, head 2 of 12"),
    ):
        group.send_keys(key)
        assert status(browser) == expected
    Select(browser.find_element(By.ID, "pick-sentence")).select_by_index(1)
    maps = json.loads((analysis.parent / "maps.json").read_text("utf-8"))
    sentence = maps["sentences"][1]
    row = 3
    for _ in range(row - 1):
        group.send_keys(Keys.SHIFT, Keys.ARROW_DOWN, Keys.NULL)
    size = sentence["size"]
    weights = [
        byte for byte in base64.b64decode(sentence["model"])[(1 * size + row) * size :][:size]
    ]
    text = browser.find_element(By.CSS_SELECTOR, ".readout").text
    assert (
        f"{sentence['tokens'][row]} (token {row + 1}) puts weight on {sum(byte > 0 for byte in weights)} of {size}"
        in text
    )
    assert len(browser.find_elements(By.CSS_SELECTOR, ".word")) == size
    word = browser.find_elements(By.CSS_SELECTOR, ".word")[0]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", word)
    ActionChains(browser).move_to_element(word).perform()
    weight = (weights[0] / 255) ** 2
    assert (
        f"On {sentence['tokens'][0]} (token 1) " + (f"{weight:.4f}" if weight else "exactly 0")
    ) in browser.find_element(By.CSS_SELECTOR, ".readout").text
    no_errors(browser)


def test_named_heads_lead_to_their_maps(browser, analysis):
    heads = json.loads((analysis.parent / "heads.json").read_text())
    show(browser, analysis)
    first = heads["positional_heads"][0]
    name = f"Layer {first['layer'] + 1}, head {first['head'] + 1}"
    text = browser.find_element(By.ID, "roles").text
    assert name in text and f"{first['offset']:+d}".replace("-", "\u2212") in text
    button = browser.find_element(By.CSS_SELECTOR, "#roles .show")
    assert button.get_attribute("aria-label") == f"Show {name} in the sentences"
    button.send_keys(Keys.ENTER)
    assert status(browser) == f"Layer {first['layer'] + 1} of 6, head {first['head'] + 1} of 12"
    assert browser.execute_script("return document.activeElement.className") == "maps single"
    no_errors(browser)


def test_the_figures_are_those_of_the_file(browser, analysis):
    heads = json.loads((analysis.parent / "heads.json").read_text())
    show(browser, analysis)
    mean = sum(sum(row) for row in heads["density"]) / 72
    text = browser.find_element(By.ID, "glance").text
    assert f"{100 * mean:.0f} %" in text
    alphas = [value for row in heads["head_values"]["alpha"] for value in row]
    assert f"{min(alphas):.2f}" in text and f"to {max(alphas):.2f}" in text
    rows = browser.execute_script(
        "return [...document.querySelector('#learned details').querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))"
    )
    assert len(rows) == 72
    assert rows[13] == ["Layer 2, head 2", f"{heads['head_values']['alpha'][1][1]:.4f}"]
    no_errors(browser)


def test_dense_models_and_missing_parts(browser, tmp_path):
    synthetic.write_analysis(tmp_path, layers=2, heads=3, skip=("maps.json",))
    heads = json.loads((tmp_path / "heads.json").read_text())
    heads |= {
        "density": [[1, 1, 1], [1, 1, 1]],
        "head_values": {},
        "subword_merging": None,
        "subword_merging_heads": [],
        "command": None,
    }
    heads["positional_heads"] = [{**head, "weight": 0.2} for head in heads["positional_heads"]]
    (tmp_path / "heads.json").write_text(json.dumps(heads))
    show(browser, page_of(tmp_path))
    assert "fully dense" in browser.find_element(By.ID, "density").text
    assert "Nothing to show" in browser.find_element(By.ID, "learned").text
    assert "none" in browser.find_element(By.ID, "roles").text
    assert "Not recorded" in browser.find_element(By.ID, "maps").text
    assert browser.find_elements(By.CSS_SELECTOR, ".show") == []
    no_errors(browser)


def test_null_figures(browser, tmp_path):
    (tmp_path / "heads.json").write_text(
        json.dumps(
            {
                "format": 1,
                "density": [[None, 0.5], [None, None]],
                "entropy": [[None, None], [None, None]],
                "diversity": [None, None],
                "offsets": [-1, 0, 1],
                "at_offset": [[[None] * 2] * 2] * 3,
                "uniform_weight": None,
                "positional_heads": [{"layer": 0, "head": 0, "offset": 1, "weight": None}],
                "subword_merging": None,
                "subword_merging_heads": [],
                "head_values": {"alpha": [[None, None], [1.5, None]]},
            }
        )
    )
    show(browser, page_of(tmp_path))
    assert "Layer 2" in browser.find_element(By.ID, "density").get_attribute("textContent")
    no_errors(browser)
    (tmp_path / "heads.json").write_text('{"format":1}')
    show(browser, page_of(tmp_path))
    assert browser.execute_script("return document.querySelectorAll('.absent').length") >= 6
    no_errors(browser)


def test_text_is_never_markup(browser, tmp_path):
    evil = "</script><img src=x onerror=\"document.title='broken'\"><!-- ' & \u2028"
    synthetic.write_analysis(tmp_path, layers=2, heads=2)
    heads = json.loads((tmp_path / "heads.json").read_text())
    heads["model"]["name"] = heads["command"] = heads["data"]["file"] = evil
    heads["model"]["mixers"] = [{"mixer": evil, evil: evil}] * 2
    heads["head_values"] = {evil: [[1, 2], [3, 4]]}
    (tmp_path / "heads.json").write_text(json.dumps(heads))
    maps = json.loads((tmp_path / "maps.json").read_text())
    maps["sentences"][0]["text"] = maps["sentences"][0]["tokens"][1] = evil
    (tmp_path / "maps.json").write_text(json.dumps(maps))
    show(browser, page_of(tmp_path))
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.title == f"{evil} · Hedgerow report"
    assert browser.execute_script(
        "return document.querySelector('.word:nth-child(2)').textContent"
    ) == evil.replace(" ", "\u2423").replace("\u2028", "\u25a1")
    no_errors(browser)


def test_wrong_files_are_refused_by_name(tmp_path):
    synthetic.write_analysis(tmp_path, layers=1, heads=2)
    (tmp_path / "heads.json").write_text('{"format": 1, "density": [[1, "x"]]}')
    done = report(tmp_path)
    assert done.returncode == 2 and "heads.json" in done.stderr and "`density[0][1]`" in done.stderr
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_contrast_on_every_tint(browser, tmp_path, scheme):
    size = 64
    steps = bytes(round(255 * (i + 1) / size) for i in range(size)) * size
    synthetic.write_analysis(tmp_path, layers=1, heads=1)
    (tmp_path / "maps.json").write_text(
        json.dumps(
            {
                "scale": "sqrt",
                "sides": ["model"],
                "zeros": "exact",
                "heads": [1],
                "sentences": [
                    {
                        "text": "words",
                        "tokens": [f"w{i}" for i in range(size)],
                        "size": size,
                        "bin": 1,
                        "model": base64.b64encode(steps).decode(),
                    }
                ],
            }
        )
    )
    show(browser, page_of(tmp_path), media={"prefers-color-scheme": scheme})
    ratios = browser.execute_script("""
        const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        return [...document.querySelectorAll('.word')].map(word => [light(getComputedStyle(word).color), light(getComputedStyle(word).backgroundColor)])
          .map(([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05))""")
    assert len(ratios) == size and min(ratios) > 4.2
    no_errors(browser)
