"""Take the screenshots of the page that the documentation shows: ``python experiments/publish/screenshots.py MODEL [FOLDER]``.

Needs Playwright, Pillow and Debian's chromium. ``make demo`` makes the model, ``demo-output/groceries.safetensors``.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

BASKET = urlencode([("item", "Spaghetti dry"), ("item", "Frzn garlic bread/toast/sticks")])
PRODUCT = "#product?" + urlencode({"item": "Spaghetti dry"})
SHOTS = {
    "wide-light": ((1360, 940), "light", f"?{BASKET}", ("#next .row", "#whole .card", "#likely .figures")),
    "narrow-dark": ((390, 844), "dark", f"?{BASKET}", ("#next .row", "#whole .card")),
    "product": (
        (1360, 940),
        "light",
        PRODUCT,
        ("#product-with li", "#product-sizes svg", "#product-missions .mission"),
    ),
}
"""By name: width and height, colours, what follows the address, and what must be there before the picture is taken."""
TO = Path(__file__).resolve().parents[2] / "docs" / "_static"


def main(model: str, folder: Path) -> None:
    words = [sys.executable, "-m", "ndpp.cli", "serve", model, "--port", "0", "--seconds", "60"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server, sync_playwright() as engine:
        assert server.stderr is not None
        url = json.loads(server.stderr.readline())["url"]
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, ((width, height), scheme, address, there) in SHOTS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(url + address)
            for selector in there:
                page.wait_for_selector(selector, timeout=240_000)
            path = folder / f"serve-{name}.png"
            page.screenshot(path=path)
            Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
            page.close()
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else TO)
