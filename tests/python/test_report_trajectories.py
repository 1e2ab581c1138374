"""Values of heads over training: a curve for each head, one layer or all, on both pages."""

from __future__ import annotations

import json

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_report_support import no_errors, page_of, show, synthetic, wait_for

pytest_plugins = "test_report_support"
FIGURE = "figure[aria-label='Alpha of each head over training']"
SECTION = {"run": "training", "analysis": "learned"}


def lines_of(page):
    return [
        json.loads(line) for line in (page.parent / "head_values.jsonl").read_text().splitlines()
    ]


def span(values):
    return f"{min(values):.3f}–{max(values):.3f}"


def summary(driver):
    return driver.find_element(By.CSS_SELECTOR, f"{FIGURE} [role=status]").text


def texts(driver):
    """The words in the chart."""
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' .chart svg text')].map(node => node.textContent)",
        FIGURE,
    )


def curves(driver, wider_than=0.0):
    """Colours of the curves."""
    return driver.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' .chart svg path')].filter(path => path.getAttribute('fill') === 'none'"
        " && (path.getAttribute('d').match(/[LC]/g) || []).length > 15 && parseFloat(path.getAttribute('stroke-width') || 1) > arguments[1])"
        ".map(path => path.getAttribute('stroke'))",
        FIGURE,
        wider_than,
    )


def tooltip(driver, share=0.5):
    """What the chart says at a share of its width."""
    chart = driver.find_element(By.CSS_SELECTOR, f"{FIGURE} .chart")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    for back in (3, 0):
        ActionChains(driver).move_to_element_with_offset(
            chart, int((share - 0.5) * chart.size["width"]) - back, 30
        ).perform()
    return wait_for(
        lambda: driver.execute_script(
            "const card = arguments[0].querySelector(':scope > div:last-child'); return card.querySelector('svg') ? '' : card.innerText",
            chart,
        )
    )


def step(driver, name):
    driver.find_element(By.CSS_SELECTOR, f"{FIGURE} button[aria-label='{name} layer']").send_keys(
        Keys.ENTER
    )


def test_every_head_has_a_curve_in_its_layers_colour(browser, either, request):
    show(browser, either)
    lines = lines_of(either)
    first, last = lines[0]["head_values"]["alpha"], lines[-1]["head_values"]["alpha"]
    assert summary(browser) == (
        f"All layers: alpha of 72 heads went from {span(sum(first, []))} to {span(sum(last, []))}."
    )
    section = SECTION[request.node.callspec.params["either"]]
    assert browser.find_element(By.CSS_SELECTOR, f"#{section} {FIGURE}").find_elements(
        By.CSS_SELECTOR, ".legend .key"
    )
    colours = curves(browser)
    assert len(colours) == 72 and all(colours.count(colour) == 12 for colour in colours), (
        "6 layers of 12"
    )
    legend = browser.find_element(By.CSS_SELECTOR, f"{FIGURE} .legend").text.split("\n")
    assert [entry.strip() for entry in " ".join(legend).split("Layer")][1:] == [
        str(layer) for layer in range(1, 7)
    ]
    assert {"Distillation", "Recovery"} <= set(texts(browser))
    no_errors(browser)


def test_layers_by_keyboard(browser, analysis):
    show(browser, analysis)
    lines = lines_of(analysis)
    first, last = lines[0]["head_values"]["alpha"], lines[-1]["head_values"]["alpha"]
    for layer in (0, 1):
        step(browser, "Next")
        assert (
            summary(browser)
            == f"Layer {layer + 1}: alpha of 12 heads went from {span(first[layer])} to {span(last[layer])}."
        )
        assert [text for text in texts(browser) if text.startswith("Head")] == [
            f"Head {head + 1}" for head in range(12)
        ]
        assert len(curves(browser)) == 72 and len(curves(browser, wider_than=1.5)) == 12
    for _ in range(3):
        step(browser, "Previous")
    assert summary(browser).startswith("Layer 6:"), "all layers, then around the end"
    select = browser.find_element(By.CSS_SELECTOR, f"{FIGURE} select")
    assert browser.execute_script("return arguments[0].labels[0].textContent", select) == "Layer"
    select.send_keys("A")
    assert summary(browser).startswith("All layers:")
    no_errors(browser)


def test_tooltips_tell_the_values_of_the_step(browser, standard):
    show(browser, standard)
    lines = lines_of(standard)
    text = tooltip(browser, 0.2)
    title, *rows = text.splitlines()
    assert title.startswith("Distillation, step ")
    at = next(
        line
        for line in lines
        if line["stage"] == "distil" and line["step"] == int(title.split()[-1])
    )
    alpha = at["head_values"]["alpha"]
    assert [row.strip() for row in rows if row.strip()] == [
        text
        for layer, heads in enumerate(alpha)
        for text in (f"Layer {layer + 1}", span(heads).replace("–", " – "))
    ]
    step(browser, "Next")
    rows = [row.strip() for row in tooltip(browser, 0.2).splitlines()[1:] if row.strip()]
    ranked = sorted(range(12), key=lambda head: -alpha[0][head])
    assert rows == [
        text for head in ranked for text in (f"Head {head + 1}", f"{alpha[0][head]:.3f}")
    ]
    assert tooltip(browser, 0.9).startswith("Recovery, step ")
    no_errors(browser)


def test_numbers_are_those_of_the_file(browser, standard):
    show(browser, standard)
    lines = lines_of(standard)
    table = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tr')].map(row => [...row.children].map(cell => cell.textContent))",
        FIGURE,
    )
    assert (
        table[0] == ["Head", "Start", "After distillation", "After recovery"] and len(table) == 73
    )
    ends = [lines[0], [line for line in lines if line["stage"] == "distil"][-1], lines[-1]]
    assert table[1 + 3 * 12 + 7] == [
        "Layer 4, head 8",
        *(f"{end['head_values']['alpha'][3][7]:.4f}" for end in ends),
    ]
    histogram = browser.find_element(
        By.CSS_SELECTOR, "#training figure[aria-label='How many heads have which alpha'] .chart"
    )
    counts = histogram.get_attribute("aria-label").split(": ")[1].split(", ")
    assert sum(map(int, counts)) == 72
    no_errors(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_are_seen_on_their_ground(browser, standard, scheme):
    show(browser, standard, media={"prefers-color-scheme": scheme})
    ratios = browser.execute_script(
        """
      const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = light(getComputedStyle(document.querySelector('.panel')).backgroundColor);
      return arguments[0].map(light).map(curve => (Math.max(curve, ground) + 0.05) / (Math.min(curve, ground) + 0.05))""",
        curves(browser),
    )
    assert len(ratios) == 72 and min(ratios) > 1.5
    assert len(set(curves(browser))) == 6
    no_errors(browser)


def test_many_layers_on_a_phone(browser, tmp_path):
    show(
        browser,
        page_of(synthetic.write_run(tmp_path, layers=24, heads=16, steps=20)),
        width=360,
        height=760,
    )
    assert len(curves(browser)) == 384
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= 360
    text = tooltip(browser)
    assert "mean" in text and "highest, Layer" in text and "lowest, Layer" in text
    step(browser, "Next")
    inside = browser.execute_script(
        "const chart = document.querySelector(arguments[0] + ' .chart').getBoundingClientRect();"
        "return [...document.querySelectorAll(arguments[0] + ' .chart svg text')].every(text => text.getBoundingClientRect().right <= chart.right + 1)",
        FIGURE,
    )
    assert inside, "the legend wraps"
    assert sum(text.startswith("Head") for text in texts(browser)) == 16
    no_errors(browser)


def line(stage, number, **values):
    return json.dumps({"stage": stage, "step": number, "head_values": values}) + "\n"


def test_only_what_moves_is_drawn(browser, tmp_path):
    log = tmp_path / "head_values.jsonl"
    log.write_text(line("recover", 0, alpha=[[1.5, 1.5]]))
    show(browser, page_of(tmp_path))
    assert browser.find_elements(By.CSS_SELECTOR, "figure[aria-label$='over training']") == []
    evil = "<img src=x onerror=\"document.title='broken'\">"
    log.write_text(
        line("fit", 0, alpha=[[1.5, 1.5], [None, None]], **{evil: [[0, 0], [None, None]]})
        + "".join(
            line("fit", number, **{evil: [[number, -number], [None, None]]})
            for number in range(1, 20)
        )
    )
    show(browser, page_of(tmp_path))
    figure = browser.find_element(By.CSS_SELECTOR, "figure[aria-label$='over training']")
    assert (
        evil in figure.get_attribute("aria-label")
        and browser.execute_script("return document.querySelectorAll('img').length") == 0
    )
    assert evil in figure.find_element(By.CSS_SELECTOR, "[role=status]").text
    figure.find_element(By.CSS_SELECTOR, "button[aria-label='Previous layer']").send_keys(
        Keys.ENTER
    )
    assert figure.find_element(By.CSS_SELECTOR, "[role=status]").text == f"Layer 2 keeps no {evil}."
    assert [
        cell.get_attribute("textContent")
        for cell in figure.find_elements(By.CSS_SELECTOR, "thead th")
    ] == ["Head", "Start", "End"]
    no_errors(browser)
