"""The files of the page: a table of names, read once at the start. What is not in it is not there."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from saccade.serve.errors import ApiError

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}


@dataclass(frozen=True)
class StaticFile:
    """A file as it is sent."""

    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


def _pages() -> dict[str, StaticFile]:
    """Address → file."""
    found = {
        "/": StaticFile(files("saccade.serve").joinpath("web", "index.html").read_bytes(), "text/html; charset=utf-8")
    }
    for package, address in (("saccade.view", "/static/view/"), ("saccade.serve", "/static/")):
        for file in files(package).joinpath("web").iterdir():
            kind = _TYPES.get(f".{file.name.rpartition('.')[2]}")
            if kind:
                found[address + file.name] = StaticFile(file.read_bytes(), kind)
    return found


def page_routes() -> list[Route]:
    """GET and HEAD of each file."""
    pages = _pages()

    async def page(request: Request) -> Response:
        found = pages.get(request.url.path)
        if found is None:
            raise ApiError(404, "there is no such page")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    return [Route("/", page), Route("/static/{name:path}", page)]
