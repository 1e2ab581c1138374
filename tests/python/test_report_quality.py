"""The section of quality.json in a real browser, and the pages of folders that hold several files."""

from __future__ import annotations

import pytest
import spectra_data
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_report_spectra import chart_label, text_of, write
from test_report_support import no_errors, pick, report, show, synthetic

pytest_plugins = "test_report_support"


@pytest.fixture(scope="session")
def quality_page(tmp_path_factory):
    return write(tmp_path_factory.mktemp("quality"), quality=spectra_data.quality())


def test_quality_controls_and_table(browser, quality_page):
    data = spectra_data.quality()
    show(browser, quality_page)
    rows = browser.find_elements(By.CSS_SELECTOR, "#quality tbody tr")
    assert len(rows) == len(data["rows"])
    first = [cell.text for cell in rows[0].find_elements(By.CSS_SELECTOR, "th, td")]
    assert first[:6] == [
        "Partial scores",
        "8",
        "Layer",
        "Fixed",
        "Nothing",
        f"{data['rows'][0]['embedding_cosine']:.3f}",
    ]
    assert first[-2:] == ["789 ms", "1.2 s"]
    last = [cell.text for cell in rows[-1].find_elements(By.CSS_SELECTOR, "th, td")]
    assert last[0] == "Linformer" and last[-1] == "–"
    assert "No time is saved by partial scores with 64 positions" in text_of(browser, "#quality")
    assert chart_label(browser, "#quality .chart").startswith("Embedding cosine: ")
    pick(browser, "#quality .controls", "Embedding cosine").send_keys(Keys.ARROW_RIGHT)
    assert chart_label(browser, "#quality .chart").startswith("Same nearest neighbour: ")
    pick(browser, "#quality .controls", "Reconstruction").send_keys(" ")
    label = chart_label(browser, "#quality .chart")
    assert label.count(";") == 0 and "Partial scores, layer, fixed R" in label
    pick(browser, "#quality .controls", "Scores").send_keys(" ")
    assert "Multiplications: scores" in text_of(browser, "#quality")
    no_errors(browser)


def test_alone_it_has_a_page(browser, quality_page):
    show(browser, quality_page)
    links = browser.find_elements(By.CSS_SELECTOR, ".topbar nav a")
    assert [link.text for link in links] == ["Quality", "Run"]
    assert text_of(browser, "#subtitle") == "21 conversions of MiniLM-L6 on texts of 128 tokens."
    assert "python bench/quality.py" in text_of(browser, "#run")
    no_errors(browser)


def test_beside_a_conversion(browser, tmp_path):
    synthetic.write_run(tmp_path, layers=2, heads=2, steps=5)
    show(browser, write(tmp_path, quality=spectra_data.quality()))
    links = [
        link.get_attribute("href").split("#")[1]
        for link in browser.find_elements(By.CSS_SELECTOR, ".topbar nav a")
    ]
    assert links == [
        "results",
        "training",
        "fidelity",
        "maps",
        "embeddings",
        "speed",
        "quality",
        "run",
    ]
    assert "Softmax attention replaced by" in text_of(browser, "#subtitle")
    run = text_of(browser, "#run")
    assert "Command of quality.json" in run and "python bench/quality.py" in run
    no_errors(browser)


def test_beside_an_analysis_of_heads(browser, tmp_path):
    synthetic.write_analysis(tmp_path, layers=3, heads=5)
    show(browser, write(tmp_path, spectra_data.spectra()))
    assert len(text_of(browser, "#density")) > 60 and len(text_of(browser, "#overlap")) > 60
    assert "Command of spectra.json" in text_of(browser, "#run")
    no_errors(browser)


def test_wrong_quality_is_refused_by_place(tmp_path):
    (tmp_path / "quality.json").write_text('{"format": 1, "rows": [{"kind": "partial"}]}')
    done = report(tmp_path)
    assert done.returncode == 2 and "quality.json" in done.stderr
    assert "`rows[0].positions`" in done.stderr
