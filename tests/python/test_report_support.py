"""What the tests of the report share: synthetic runs, a browser without network, small helpers."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get(
    "HEDGEROW_PROGRAM", str(PROJECT / "build" / "release" / "bin" / "hedgerow")
)
FILES = ("summary.json", "metrics.jsonl", "analysis.json", "maps.json", "bench.json")
SECTIONS = ("results", "training", "fidelity", "maps", "embeddings", "speed", "run")

spec = importlib.util.spec_from_file_location(
    "report_synthetic_run", PROJECT / "tools" / "report_synthetic_run.py"
)
synthetic = importlib.util.module_from_spec(spec)
spec.loader.exec_module(synthetic)


def report(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [PROGRAM, "report", str(folder), *options], capture_output=True, text=True, timeout=120
    )


def page_of(folder: pathlib.Path) -> pathlib.Path:
    done = report(folder)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


@pytest.fixture(scope="session")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--window-size=1440,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(120)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def standard(tmp_path_factory) -> pathlib.Path:
    """A run of 6 layers and 12 heads; returns its page."""
    return page_of(
        synthetic.write_run(tmp_path_factory.mktemp("standard"), layers=6, heads=12, seed=1)
    )


@pytest.fixture(scope="session")
def analysis(tmp_path_factory) -> pathlib.Path:
    """An analysis of 6 layers and 12 heads; returns its page."""
    return page_of(
        synthetic.write_analysis(tmp_path_factory.mktemp("analysis"), layers=6, heads=12, seed=1)
    )


@pytest.fixture(scope="session", params=["run", "analysis"])
def either(request, standard, analysis) -> pathlib.Path:
    """The page of a run, then that of an analysis."""
    return standard if request.param == "run" else analysis


@pytest.fixture
def opened(browser, standard):
    return show(browser, standard)


def show(
    driver, page: pathlib.Path, width: int = 1440, height: int = 900, media: dict | None = None
):
    """Open the page at a size and with media features (prefers-color-scheme, ...)."""
    driver.get_log("browser")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    features = {
        "prefers-color-scheme": "light",
        "prefers-reduced-motion": "reduce",
        **(media or {}),
    }
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "", "features": [{"name": k, "value": v} for k, v in features.items()]},
    )
    driver.get(page.as_uri())
    assert driver.execute_script("return document.documentElement.dataset.ready") == "true", (
        driver.get_log("browser")
    )
    return driver


def no_errors(driver) -> None:
    assert [
        entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ] == []


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
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)",
        selector,
    )


def charts(driver) -> list[dict]:
    return driver.execute_script(
        "return [...document.querySelectorAll('.chart')].map(node => ({label: node.getAttribute('aria-label'), role: node.getAttribute('role'),"
        "shapes: node.querySelectorAll('svg path').length, texts: node.querySelectorAll('svg text').length,"
        "wide: node.querySelector('svg')?.getBoundingClientRect().width || 0}))"
    )


def status(driver) -> str:
    return driver.execute_script(
        "return document.querySelector('#maps span.hidden[role=status]').textContent"
    )


def pick(driver, scope: str, label: str):
    """The radio button of a group by its text, scrolled into view."""
    radio = driver.find_element(By.CSS_SELECTOR, scope).find_element(
        By.XPATH, f".//label[span[text()='{label}']]/input"
    )
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", radio)
    return radio
