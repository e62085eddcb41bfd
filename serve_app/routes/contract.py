"""The contract of an endpoint, written beside it: what it takes and answers with. OpenAPI is made from it.

Types of the `openai` package are given by name: importing it takes half a second and 20 MB, which a process spends
only when a client asks for the document.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Contract:
    """What an endpoint takes and answers with; paths and summaries are in the route table and in docstrings.

    `answer`, `of` and `events` are types, or their full names. `of` is what a generic answer holds, `events` what each
    server-sent event of a streamed answer is. `form` is the body as a multipart form. `exports` are the other media
    types that a query may ask for.
    """

    answer: Any
    of: Any = None
    events: Any = None
    body: type[BaseModel] | None = None
    form: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    media_type: str = "application/json"
    exports: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    needs_key: bool = True


def answers(answer: Any, **more: Any) -> Callable[[Endpoint], Endpoint]:
    """Return a decorator that notes an endpoint's Contract, whose fields these are."""
    contract = Contract(answer, **more)

    def note(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)["contract"] = contract
        return endpoint

    return note


def contract_of(endpoint: Callable[..., Any]) -> Contract:
    """Return the contract of an endpoint.

    Raises:
        LookupError: it has none.
    """
    contract = vars(endpoint).get("contract")
    if not isinstance(contract, Contract):
        raise LookupError(f"{endpoint.__module__}.{endpoint.__name__} needs an `@answers(...)`.")
    return contract
