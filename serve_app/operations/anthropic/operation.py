"""The operation behind /v1/messages: a chat in Anthropic's dialect."""

from dataclasses import dataclass

import orjson

from deployments.models.contract.engine import Engine
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest
from serve_app.operations.anthropic.answer import MessageBlocks, MessageStream
from serve_app.operations.anthropic.dialect import chat_of, in_words_of_messages, names_of
from serve_app.operations.chat import ChatOperation
from serve_app.operations.contract import Cost, Outcome
from serve_app.operations.dialects import checked
from serve_app.operations.tokenize import TokenizeOperation
from serve_app.schemas.anthropic.request import CountTokensRequest, MessagesRequest
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.tokenization import TokenizeRequest


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A request whose chat is checked, and what it may take."""

    request: MessagesRequest
    engine: Engine
    body: ChatRequest
    raw: bytes
    cost: Cost


class MessagesOperation:
    """Answers messages over a chat operation, and counts their tokens with the model's tokenizer."""

    def __init__(self, chat: ChatOperation, tokenize: TokenizeOperation) -> None:
        self._chat = chat
        self._tokenize = tokenize

    def prepare(self, request: MessagesRequest, principal: Principal) -> PreparedMessage:
        """Return a request that can be run.

        Raises:
            ApiError: the key may not use the model, or the model does not support the request.
        """
        engine = self._chat.find_engine(request.model, principal)
        chat = chat_of(request, engine.card)
        body = checked(chat, ChatRequest, in_words_of_messages)
        try:
            cost = self._chat.cost(body, principal)
        except BadRequest as error:
            raise in_words_of_messages(error) from None
        return PreparedMessage(request, engine, body, orjson.dumps(chat), cost)

    def run(self, prepared: PreparedMessage, principal: Principal, *, request_id: str) -> Outcome:
        """Return the answer to a request, not begun yet."""
        request, engine = prepared.request, prepared.engine
        chat = self._chat.run_whole_as_events(engine, prepared.body, prepared.raw, principal, request_id=request_id)
        thinking = request.thinking
        blocks = MessageBlocks(names_of(request), shows_thinking=thinking is None or thinking.display != "omitted")
        head = {
            "id": "msg_" + request_id.removeprefix("req_"),
            "type": "message",
            "role": "assistant",
            "model": engine.card.id,
        }
        return Outcome(MessageStream(chat, blocks, head, is_stream=request.is_stream), request.is_stream)

    def count(self, request: CountTokensRequest, principal: Principal, *, request_id: str) -> Outcome:
        """Return an answer that has the number of tokens as `count`; no model reads the prompt. Raises as `prepare`."""
        chat = chat_of(request, self._chat.find_engine(request.model, principal).card)
        body = checked(chat, TokenizeRequest, in_words_of_messages)
        try:
            self._tokenize.cost(body, principal)
        except BadRequest as error:
            raise in_words_of_messages(error) from None
        return self._tokenize.run(body, orjson.dumps(chat), principal, request_id=request_id)
