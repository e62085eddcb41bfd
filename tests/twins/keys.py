"""Principals as keys make them, through `NewKey` and a row of the database: none is here that no key can become."""

from deployments.state.database.tables.service import api_keys
from deployments.state.identity.keys import PREFIX, NewKey, StoredKey
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers


def principal_of_key(key_id: str = "key_1", tiers: Tiers | None = None, **values: object) -> Principal:
    """Return who holds a new key; `values` are the fields of `NewKey`.

    Raises:
        ValidationError: there can be no such key.
    """
    new = NewKey.model_validate(values)
    unused = dict.fromkeys(api_keys.columns.keys())
    issued = {"key_id": key_id, "revision": 1, "digest": b"", "prefix": PREFIX, "last_four": "", "created_at": 0.0}
    key = StoredKey.from_row({**unused, **new.model_dump(mode="json"), **issued}, tiers or Tiers())
    assert key.principal is not None
    return key.principal
