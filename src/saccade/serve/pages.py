"""The static files of the web page, read once at startup. A path that is not one of them is a 404."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from saccade.serve.errors import ApiError

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}


@dataclass(frozen=True)
class StaticFile:
    """The content and media type of a file."""

    content: bytes
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


def _static_files() -> dict[str, StaticFile]:
    """URL path → file."""
    index = files("saccade.serve").joinpath("web", "index.html").read_bytes()
    served = {"/": StaticFile(index, "text/html; charset=utf-8")}
    for package, prefix in (("saccade.view", "/static/view/"), ("saccade.serve", "/static/")):
        for file in files(package).joinpath("web").iterdir():
            media_type = _MEDIA_TYPES.get(f".{file.name.rpartition('.')[2]}")
            if media_type:
                served[prefix + file.name] = StaticFile(file.read_bytes(), media_type)
    return served


def page_routes() -> list[Route]:
    """The GET and HEAD routes of the static files."""
    served = _static_files()

    async def page(request: Request) -> Response:
        file = served.get(request.url.path)
        if file is None:
            raise ApiError(404, "there is no such page")
        headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    return [Route("/", page), Route("/static/{name:path}", page)]
