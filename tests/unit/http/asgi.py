"""A server for ASGI applications in tests, and its messages."""

import asyncio


def scope(method="POST", path="/x", headers=()):
    return {"type": "http", "method": method, "path": path, "headers": list(headers)}


class Server:
    """What calls the application: hands out messages in turn and keeps what is sent."""

    def __init__(self, *messages):
        self.messages = list(messages)
        self.sent = []

    async def receive(self):
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    async def send(self, message):
        self.sent.append(message)

    @property
    def headers(self):
        return dict(self.sent[0]["headers"])


def body(data=b"", more=False):
    return {"type": "http.request", "body": data, "more_body": more}


async def ok(scope, receive, send):
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b"ok"})
