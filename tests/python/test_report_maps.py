"""The attention maps of the report: exact weights, keys, mouse, long texts."""

from __future__ import annotations

import base64
import json
import time

from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from test_report_support import (
    colours_of,
    no_errors,
    page_of,
    pick,
    show,
    status,
    synthetic,
    wait_for,
)

pytest_plugins = "test_report_support"


def test_layers_may_differ_in_heads(browser, tmp_path):
    tokens, heads = ["a", "b", "c"], [1, 3]
    data = bytes(range(9 * 4))
    (tmp_path / "maps.json").write_text(
        json.dumps(
            {
                "scale": "linear",
                "heads": heads,
                "sentences": [
                    {
                        "text": "a b c",
                        "tokens": tokens,
                        "size": 3,
                        "bin": 1,
                        "teacher": base64.b64encode(data).decode(),
                        "model": base64.b64encode(data[::-1]).decode(),
                    }
                ],
            }
        )
    )
    (tmp_path / "analysis.json").write_text(
        '{"kl":{"before":[[1],[2,3,4]],"after":[[0.5],[0.1,0.2,0.3]]}}'
    )
    show(browser, page_of(tmp_path))
    group = browser.find_element(By.CSS_SELECTOR, ".maps")
    group.send_keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert status(browser) == "Layer 2 of 2, head 3 of 3"
    group.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.NULL)
    text = browser.find_element(By.CSS_SELECTOR, ".readout").text
    assert (
        f"teacher {data[27 + 1] / 255:.4f}" in text
        and f"converted {data[::-1][27 + 1] / 255:.4f}" in text
    )
    group.send_keys(Keys.ARROW_UP)
    assert status(browser) == "Layer 1 of 2, head 1 of 1"
    no_errors(browser)


def test_pointing_reads_the_exact_weight(opened, standard):
    maps = json.loads((standard.parent / "maps.json").read_text("utf-8"))
    index, layer, head, row, col = 1, 2, 7, 3, 1
    sentence = maps["sentences"][index]
    size = sentence["size"]
    at = ((layer * 12 + head) * size + row) * size + col
    weights = {
        side: (base64.b64decode(sentence[side])[at] / 255) ** 2 for side in ("teacher", "model")
    }
    Select(opened.find_element(By.ID, "pick-sentence")).select_by_index(index)
    Select(opened.find_element(By.ID, "pick-layer")).select_by_index(layer)
    Select(opened.find_element(By.ID, "pick-head")).select_by_index(head)
    for frame in opened.find_elements(By.CSS_SELECTOR, ".map-frame"):
        opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", frame)
        box = opened.execute_script(
            "const r = arguments[0].getBoundingClientRect(); return [r.left, r.top, r.width, r.height]",
            frame,
        )
        label = plot_edge(opened, frame)
        cell = (box[3] - label) / size
        ActionChains(opened).move_to_element_with_offset(
            frame,
            -box[2] / 2 + label + (col + 0.5) * cell,
            -box[3] / 2 + label + (row + 0.5) * cell,
        ).perform()
        text = opened.find_element(By.CSS_SELECTOR, ".readout").text
        assert f"teacher {weights['teacher']:.4f}, converted {weights['model']:.4f}" in text, text
        assert sentence["tokens"][row] in text and sentence["tokens"][col] in text
        difference = weights["model"] - weights["teacher"]
        assert f"{difference:+.4f}".replace("-", "\u2212") in text
    no_errors(opened)


def plot_edge(driver, frame) -> float:
    """Width of the labels: the crossing lines start where the plot starts."""
    driver.find_element(By.CSS_SELECTOR, ".maps").send_keys(Keys.SHIFT, Keys.ARROW_DOWN, Keys.NULL)
    return driver.execute_script(
        "return parseFloat(arguments[0].querySelector('.cross.row').style.left)", frame
    )


def test_keys_move_head_layer_and_reading_point(opened):
    group = opened.find_element(By.CSS_SELECTOR, ".maps")
    assert status(opened) == "Layer 1 of 6, head 1 of 12"
    before = opened.execute_script("return document.querySelector('.map-frame canvas').toDataURL()")
    for key, expected in (
        (Keys.ARROW_RIGHT, "Layer 1 of 6, head 2 of 12"),
        (Keys.ARROW_DOWN, "Layer 2 of 6, head 2 of 12"),
        (Keys.ARROW_LEFT, "Layer 2 of 6, head 1 of 12"),
        (Keys.ARROW_LEFT, "Layer 2 of 6, head 12 of 12"),
        (Keys.ARROW_UP, "Layer 1 of 6, head 12 of 12"),
        (Keys.ARROW_UP, "Layer 6 of 6, head 12 of 12"),
    ):
        group.send_keys(key)
        assert status(opened) == expected
    assert opened.find_element(By.ID, "pick-head").get_attribute("value") == "11"
    assert (
        opened.execute_script("return document.querySelector('.map-frame canvas').toDataURL()")
        != before
    )
    readout = opened.find_element(By.CSS_SELECTOR, ".readout")
    assert "Point at a cell" in readout.text
    group.send_keys(Keys.SHIFT, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.NULL)
    assert "(token 2) looks at" in readout.text and "(token 2)" in readout.text.split("looks at")[1]
    group.send_keys(Keys.ESCAPE)
    assert "Point at a cell" in readout.text
    no_errors(opened)


def test_mouse_controls(opened):
    opened.find_element(By.CSS_SELECTOR, "#maps button[aria-label='Next layer']").click()
    opened.find_element(By.CSS_SELECTOR, "#maps button[aria-label='Previous head']").click()
    assert status(opened) == "Layer 2 of 6, head 12 of 12"
    atlas = opened.find_element(By.CSS_SELECTOR, ".atlas-scroll canvas")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", atlas)
    ActionChains(opened).move_to_element(atlas).click().perform()
    assert status(opened) in (
        "Layer 3 of 6, head 7 of 12",
        "Layer 4 of 6, head 7 of 12",
        "Layer 3 of 6, head 6 of 12",
        "Layer 4 of 6, head 6 of 12",
    )
    for label, hidden in (
        ("Difference", [True, True, False]),
        ("All three", [False, False, False]),
    ):
        pick(opened, "#maps .controls", label).click()
        assert (
            opened.execute_script(
                "return [...document.querySelectorAll('.map')].map(figure => figure.hidden)"
            )
            == hidden
        )
    more = opened.find_element(By.XPATH, "//section[@id='embeddings']//button")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", more)
    more.click()
    assert len(opened.find_elements(By.CSS_SELECTOR, ".example")) == 5
    no_errors(opened)


def test_a_map_of_4096_tokens_opens_without_freezing(browser, tmp_path):
    page = page_of(synthetic.write_run(tmp_path, layers=6, heads=12, steps=20, long=True))
    assert page.stat().st_size > 40_000_000
    start = time.monotonic()
    show(browser, page)
    assert time.monotonic() - start < 30, "opening the page"
    browser.execute_script(
        "window.longest = 0; let last = performance.now(); setInterval(() => { const now = performance.now(); window.longest = Math.max(window.longest, now - last); last = now; }, 5)"
    )
    Select(browser.find_element(By.ID, "pick-sentence")).select_by_index(len(synthetic.SENTENCES))
    text = browser.find_element(By.ID, "maps").text
    assert "4,096 tokens" in text and "8 × 8 tokens" in text
    group = browser.find_element(By.CSS_SELECTOR, ".maps")
    for _ in range(3):
        group.send_keys(Keys.ARROW_RIGHT)
    group.send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.NULL)
    assert "(token 9 to 16) looks at" in browser.find_element(By.CSS_SELECTOR, ".readout").text
    wait_for(
        lambda: (
            browser.execute_script(
                "return document.querySelector('.atlas-scroll canvas').dataset.done"
            )
            == "true"
        ),
        90,
    )
    assert all(
        count > 10 for count in colours_of(browser, ".map-frame canvas, .atlas-scroll canvas")
    )
    assert browser.execute_script("return window.longest") < 3000, "the page did not answer for 3 s"
    no_errors(browser)
