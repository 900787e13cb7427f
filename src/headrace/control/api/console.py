"""The console: the files of headrace/control/console, and one page at all addresses below /ui, whose scripts ask the API as any client does.

Nothing of it is a secret, so nobody needs to log in for it; what it shows comes from the API.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

_FILES = Path(__file__).parents[1] / "console"


def add_console(app: FastAPI) -> None:
    """Serves it below /ui, and leads there from /."""
    app.mount("/ui/files", StaticFiles(directory=_FILES))
    app.add_api_route("/ui/{page:path}", _page, include_in_schema=False)
    app.add_api_route("/", _lead, include_in_schema=False)


def _page() -> FileResponse:
    return FileResponse(_FILES / "index.html")


def _lead() -> RedirectResponse:
    return RedirectResponse("/ui/")
