"""The report in a real browser, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from knockout.report.html import write_html

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver, which are not installed here"
)
FLAGS = ("headless", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-sync", "no-first-run")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_network_conditions(offline=True, latency=0, throughput=0)
    yield driver
    driver.quit()


@pytest.mark.parametrize("width", [1200, 390])
def test_a_report_opens_offline_and_fits(width: int, report_facts: dict[str, Any], browser: Any, tmp_path: Path) -> None:
    browser.set_window_size(width, 900)
    browser.get(write_html(report_facts, folder=tmp_path).as_uri())
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.find_element(By.TAG_NAME, "h1").text == report_facts["study"]["question"]
    badges = [badge.text for badge in browser.find_elements(By.CLASS_NAME, "badge")]
    assert badges == [verdict["outcome"] for verdict in report_facts["verdicts"]]
    figures = browser.find_elements(By.TAG_NAME, "figure")
    assert len(figures) == len(report_facts["charts"])
    widths = [[drawn.size["width"] for drawn in figure.find_elements(By.TAG_NAME, "svg")] for figure in figures]
    assert all(max(drawn) > 200 for drawn in widths), widths
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(overflow) <= 1
