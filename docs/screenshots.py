"""The pictures of docs/explorer.md: pages of the demo, as a browser draws them.

make demo
python -m docs.screenshots http://127.0.0.1:8000

Names behind the address draw these alone. That of the inbox is of a service with the samples:

python -m docs.screenshots http://127.0.0.1:8000 explorer-inbox

All pages, in both themes and at two widths, go into a folder to be inspected; the
service is one of its own, with the data of the browser's tests:

python -m docs.screenshots --all FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from docs.screenshots_of_all_pages import draw_all
from tests.support.servers.browser import BROWSER

_FOLDER: Final = Path(__file__).parent / "images"
_SPACE: Final = "/spaces/digits-cnn"
_DESK, _PHONE = (1180, 800), (360, 740)

_PICTURES: Final = {
    "explorer-inbox": ("/", "light", (1180, 1040)),
    "explorer-space": (f"{_SPACE}?q=digit%3D5", "light", _DESK),
    "explorer-model": (f"{_SPACE}/models/digits/client-00", "light", _DESK),
    "explorer-model-dark": (f"{_SPACE}/models/digits/client-00", "dark", _DESK),
    "explorer-pair": (f"{_SPACE}/pairs?a=digits/client-00&b=digits/client-21", "light", _DESK),
    "explorer-map": (f"{_SPACE}/map", "light", (1180, 1120)),
    "explorer-graph": (
        f"{_SPACE}/graph?of=digits/client-00&of=digits/client-09&of=digits/client-03",
        "light",
        (1180, 900),
    ),
    "explorer-matrix": (f"{_SPACE}/matrix", "light", (1180, 1120)),
    "explorer-clusterings": (f"{_SPACE}/clusterings", "light", _DESK),
    "explorer-phone": (f"{_SPACE}/models/digits/client-00", "dark", _PHONE),
}
"""Address, theme and size by name."""


def main(url: str, *names: str) -> None:
    """Draw them, or those of some names, from the service at ``url``."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for name, (path, scheme, (width, height)) in _PICTURES.items():
            if names and name not in names:
                continue
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page.goto(url + path, wait_until="networkidle")
            page.screenshot(path=_FOLDER / f"{name}.png")
            print(f"{name}.png of {path}")
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--all"]:
        print(f"{draw_all(Path(sys.argv[2]))} pictures")
    else:
        main(*sys.argv[1:])
