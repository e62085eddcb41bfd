"""Carries out requests that come over the replica's channel: the operations on its containers."""

from typing import Any

from deployments.channel.errors import ChannelError, Full, Refused
from deployments.channel.server import Reply
from deployments.tools.code_interpreter.holder import Holder
from deployments.tools.code_interpreter.messages import (
    ContainerError,
    ContainerFileMissing,
    ContainerGone,
    ContainerRefused,
    file_to_message,
)

CODES: dict[type[ContainerError], str] = {
    ContainerGone: "container_gone",
    ContainerFileMissing: "container_file_missing",
    ContainerRefused: "container_refused",
}


class ContainerRunner:
    """Carries out requests about containers; implements `channel.server.Runner`."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request.

        Raises:
            ChannelError: it did not work; the code of a Refused says why.
        """
        try:
            await self._run(header, body, reply)
        except ContainerError as error:
            raise _translated(error) from None

    async def _run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        holder, container_id = self._holder, header.get("container", "")
        match header["operation"]:
            case "status":
                holder.check_able()
                reply.end({})
            case "create":
                await holder.create(container_id, header["idle_s"])
                reply.end({})
            case "run":
                result = await holder.run(container_id, body.decode("utf-8", "replace"))
                for _, image in result.images:
                    reply.write(image)
                outcome = {"status": result.status, "logs": result.logs, "reason": result.reason}
                files = [file_to_message(file) for file in result.files]
                reply.end({**outcome, "images": [name for name, _ in result.images], "files": files})
            case "check":
                holder.check(container_id)
                reply.end({})
            case "list":
                reply.end({"files": [file_to_message(file) for file in await holder.list_files(container_id)]})
            case "read":
                reply.write(await holder.read(container_id, header["file"], header["offset"]))
                reply.end({})
            case "write":
                path, offset, is_last = header["path"], header["offset"], header["is_last"]
                file = await holder.write(container_id, path, offset, body, is_last=is_last)
                reply.end({"file": file_to_message(file) if file is not None else None})
            case "remove":
                await holder.remove(container_id, header["file"])
                reply.end({})
            case "end":
                await holder.end(container_id)
                reply.end({})
            case _:
                raise Refused("There is no such operation.", "operation", "unsupported_value")


def _translated(error: ContainerError) -> ChannelError:
    code = CODES.get(type(error))
    return Full(error.message) if code is None else Refused(error.message, None, code)
