"""What Chromium thinks of a page."""

import shutil
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
PAPER = {"light": "rgb(252, 252, 253)", "dark": "rgb(21, 24, 28)"}


def complaints(page: Path, *, scheme: str, width: int) -> list[str]:
    """What is wrong with a page when it is opened: errors, requests, broken pictures, overflow, wrong theme."""
    from playwright.sync_api import sync_playwright

    found: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
        tab.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: found.append(str(error)))
        tab.on("request", lambda request: found.append(request.url) if request.url.startswith("http") else None)
        tab.goto(page.as_uri())
        if not tab.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)"):
            found.append("a picture is broken")
        if not tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"):
            found.append("the page is wider than the screen")
        if tab.evaluate("getComputedStyle(document.body).backgroundColor") != PAPER[scheme]:
            found.append("the theme is not the reader's")
        browser.close()
    return found
