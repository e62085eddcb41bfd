"""The account's files: listed, uploaded, downloaded, deleted."""

from starlette.responses import Response

from deployments.state.database.queries import Page
from deployments.state.files.store import FileNotFound
from serve_app.console.visit import Visit, redirect
from serve_app.errors.api import NotFound
from serve_app.routes import files

_PAGE_SIZE = 50


async def list_files(visit: Visit) -> Response:
    """Show the files, newest first."""
    page = Page(_PAGE_SIZE, after=visit.after)
    try:
        found, has_more = await visit.services.files.list_files(visit.account, page)
    except FileNotFound:
        raise NotFound("This account has no such file.") from None
    more = found[-1].file_id if has_more else ""
    return visit.page("files.html", files=found, more=more)


async def upload_file(visit: Visit) -> Response:
    """Store a file."""
    await visit.call(files.create_file)
    return redirect("/console/files?done=stored")


async def download_file(visit: Visit) -> Response:
    """Send a file's content, for browsers to save and never to show."""
    return await visit.call(files.download_file)


async def delete_file(visit: Visit) -> Response:
    """Delete a file."""
    await visit.call(files.delete_file)
    return redirect("/console/files?done=deleted")
