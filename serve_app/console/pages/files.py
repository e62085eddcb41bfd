"""The account's files: listed, uploaded, downloaded, deleted."""

from starlette.responses import Response

from deployments.state.files.store import FileNotFound, Page
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import NotFound
from serve_app.routes import files

_PAGE_SIZE = 50


async def list_files(visit: Visit) -> Response:
    """Show the files, newest first."""
    after, services = visit.query("after") or None, visit.services
    try:
        found, has_more = await services.files.list_files(visit.account, Page(limit=_PAGE_SIZE, after=after))
    except FileNotFound:
        raise NotFound("This account has no such file.") from None
    more = found[-1].file_id if has_more else ""
    return visit.page("files.html", files=found, more=more, after=after, done=visit.query("done"))


async def upload_file(visit: Visit) -> Response:
    """Store a file."""
    await visit.call(files.create_file)
    return redirect("/console/files?done=stored")


async def download_file(visit: Visit) -> Response:
    """Send a file's content, which browsers store and never show."""
    return await visit.call(files.download_file)


async def delete_file(visit: Visit) -> Response:
    """Destroy a file."""
    await visit.call(files.delete_file)
    return redirect("/console/files?done=deleted")
