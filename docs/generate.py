"""Generate what other files define of the pages: settings, recipes, operations."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

from app.bootstrap import open_services
from app.main import create_app
from app.settings import Settings
from docs.curl_page import curl_page
from docs.line_length import MAX_LINE_LENGTH

DOCS = Path(__file__).parent
_SETTINGS = re.compile(r"(<!-- settings: begin .*?-->\n).*?(<!-- settings: end -->)", re.DOTALL)
_FILE = re.compile(r"(<!-- file: (\S+) -->\n```\w+\n).*?^(```)$", re.DOTALL | re.MULTILINE)


def settings_list() -> str:
    """One item a setting: its variable, its default, its description."""
    items = []
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" (`{field.default}`)"
        item = f"- `MODELKIN_{name.upper()}`{default}: {field.description}."
        items.append(
            textwrap.fill(
                item,
                MAX_LINE_LENGTH,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(items) + "\n"


def settings_page() -> str:
    """docs/settings.md with the current settings."""
    text = (DOCS / "settings.md").read_text()
    return _SETTINGS.sub(lambda found: found[1] + settings_list() + found[2], text)


def recipes_page() -> str:
    """docs/recipes.md with the files as they are: what shows a repository includes none."""
    text = (DOCS / "recipes.md").read_text()
    return _FILE.sub(lambda found: found[1] + (DOCS / found[2]).read_text() + found[3], text)


def openapi() -> str:
    """The OpenAPI document of the service."""
    with TemporaryDirectory() as folder:
        settings = Settings(database_url=f"sqlite:///{folder}/modelkin.db")
        with open_services(settings) as services:
            return json.dumps(create_app(services).openapi(), indent=2) + "\n"


def main() -> int:
    """Write the pages; with ``--check`` only say whether they are up to date."""
    document = openapi()
    pages = {
        DOCS / "settings.md": settings_page(),
        DOCS / "recipes.md": recipes_page(),
        DOCS / "openapi.json": document,
        DOCS / "curl.md": curl_page(json.loads(document)),
    }
    stale = [page for page, text in pages.items() if not page.exists() or page.read_text() != text]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"docs/{page.name} is behind the code: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for page in stale:
        page.write_text(pages[page])
    return 0


if __name__ == "__main__":
    sys.exit(main())
