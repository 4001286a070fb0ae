"""Take the screenshots of the page that the documentation shows: ``python experiments/publish/screenshots.py MODEL [FOLDER]``.

Needs Playwright and Debian's chromium. ``make demo`` makes a model, ``demo-output/groceries.safetensors``.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTHS = {"wide": (1360, 980), "middle": (820, 1100), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
TO = Path(__file__).resolve().parents[2] / "docs" / "_static"


def main(model: str, folder: Path, basket: list[str]) -> None:
    words = [sys.executable, "-m", "ndpp.cli", "serve", model, "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server, sync_playwright() as engine:
        assert server.stderr is not None
        url = json.loads(server.stderr.readline())["url"]
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height) in WIDTHS.items():
            for scheme in SCHEMES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
                page.set_default_timeout(120_000)
                page.goto(url + "?" + "&".join(f"item={item}" for item in basket))
                page.wait_for_selector("#map svg")
                page.wait_for_selector("#whole .card")
                page.wait_for_selector("#related .rows")
                page.wait_for_selector("#next .rows")
                page.screenshot(path=folder / f"serve-{name}-{scheme}.png")
                page.close()
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else TO, sys.argv[3:])
