"""Content that a client keeps for the service: sealed for its account, so that no other party can read or make it."""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

from deployments.state.encryption.sealing import AccountKey, SealBroken
from deployments.state.encryption.vault import Vault

_ID_BYTES = 16


class AccountTokens:
    """Seals texts of one account into tokens and opens them again, on any replica, while the account's key exists."""

    def __init__(self, key: AccountKey) -> None:
        self._key = key

    def seal(self, text: str) -> str:
        """Return a token that holds the text."""
        token_id = secrets.token_bytes(_ID_BYTES)
        key, wrapped = self._key.new_object(token_id.hex())
        sealed = key.seal(text.encode(), b"token")
        return urlsafe_b64encode(token_id + bytes([len(wrapped)]) + wrapped + sealed).decode()

    def open(self, token: str) -> str | None:
        """Return the text of a token, None if it was not sealed for this account."""
        try:
            raw = urlsafe_b64decode(token)
            end = _ID_BYTES + 1 + raw[_ID_BYTES]
            key = self._key.open_object(raw[:_ID_BYTES].hex(), raw[_ID_BYTES + 1 : end])
            return key.open(raw[end:], b"token").decode()
        except (SealBroken, ValueError, IndexError):
            return None


class SealedTokens:
    """The tokens of every account of one vault."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def of(self, account: str) -> AccountTokens:
        """Return the tokens of an account."""
        return AccountTokens(await self._vault.account_key(account))
