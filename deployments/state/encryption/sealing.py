"""Encryption at rest: every object has a random key of its own, wrapped by its account's key. Pure; stores nothing.

    master key ── wraps ── account keys (`deployments.state.encryption.vault`) ── wrap ── data keys ── seal ── content

All of it is AES-256-GCM. Sealed content is bound to its object and to a label for its purpose, so that no ciphertext
can take the place of another. Deleting a wrapped data key destroys the content.

Long content is sealed as a stream of chunks (the layout of Tink's AES-GCM-HKDF streaming): a random salt from which
the stream's own key is derived, then chunks. The nonce of a chunk is its number and whether it is the last, so that no
chunk can be left out, moved, or cut off the end. Any range of a stream can be read without the rest.
"""

import hmac
import secrets
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
TAG_BYTES = 16
CHUNK_BYTES = 64 * 1024
"""Plaintext bytes in each chunk of a stream; the last one may be shorter."""
SALT_BYTES = 32
"""The bytes at the start of a sealed stream."""

_NONCE_BYTES = 12
_SEALED_CHUNK_BYTES = CHUNK_BYTES + TAG_BYTES
_CHUNK_NONCE = struct.Struct(">Q3xB")


class SealBroken(Exception):
    """The sealed bytes cannot be opened: they are changed, cut off, of another object, or under another key."""


class DataKey:
    """The key of one object. Secrets stay out of its repr."""

    def __init__(self, object_id: str, key: bytes) -> None:
        self.object_id = object_id
        self._key = key
        self._cipher = AESGCM(key)

    def seal(self, content: bytes, label: bytes) -> bytes:
        """Return content sealed as one piece; `label` names its purpose and is needed to open it."""
        return _seal(self._cipher, content, self._bind(label))

    def open(self, sealed: bytes, label: bytes) -> bytes:
        """Return the content that `seal` sealed under the same label.

        Raises:
            SealBroken: it was not sealed with this key and label, or has changed.
        """
        return _open(self._cipher, sealed, self._bind(label))

    def derive(self, label: bytes) -> bytes:
        """Return a secret of 32 bytes, derived from this key and the label."""
        return hmac.digest(self._key, b"derived\0" + self._bind(label), "sha256")

    def new_stream(self, label: bytes) -> "StreamSealer":
        """Return the sealer of one stream, under a key that no other stream has."""
        salt = secrets.token_bytes(SALT_BYTES)
        return StreamSealer(salt, self._stream_cipher(salt, label))

    def open_stream(self, salt: bytes, label: bytes, num_bytes: int) -> "StreamOpener":
        """Return the opener of a stream of `num_bytes` plaintext bytes that begins with `salt`."""
        return StreamOpener(self._stream_cipher(salt, label), num_bytes)

    def _stream_cipher(self, salt: bytes, label: bytes) -> AESGCM:
        info = b"stream\0" + self._bind(label)
        return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, info).derive(self._key))

    def _bind(self, label: bytes) -> bytes:
        return label + b"\0" + self.object_id.encode()


class AccountKey:
    """The key that wraps the data keys of one account's objects."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher = AESGCM(key)

    def digest(self, content: bytes, label: bytes) -> bytes:
        """Return a digest by which content can be found: equal for equal content under one label, of this account."""
        return hmac.digest(self._key, b"digest\0" + label + b"\0" + content, "sha256")

    def new_object(self, object_id: str) -> tuple[DataKey, bytes]:
        """Return a new data key and its wrapped form, which must be stored where deleting the object deletes it."""
        key = secrets.token_bytes(KEY_BYTES)
        return DataKey(object_id, key), _seal(self._cipher, key, _data_key_label(object_id))

    def open_object(self, object_id: str, wrapped: bytes) -> DataKey:
        """Return the data key that `new_object` wrapped.

        Raises:
            SealBroken: it was wrapped for another object or by another account's key.
        """
        return DataKey(object_id, _open(self._cipher, wrapped, _data_key_label(object_id)))


class StreamSealer:
    """Seals content that comes in pieces of any size; the returned bytes, joined, are the sealed stream."""

    def __init__(self, salt: bytes, cipher: AESGCM) -> None:
        self.num_bytes = 0
        self._cipher = cipher
        self._head = salt
        self._number = 0
        self._kept = bytearray()

    def update(self, piece: bytes) -> bytes:
        """Add content; return the next part of the sealed stream, which may be empty."""
        self.num_bytes += len(piece)
        self._kept += piece
        sealed = [self._take_head()]
        # Only the end shows which chunk is the last, so one chunk is always kept back, even a full one.
        while len(self._kept) > CHUNK_BYTES:
            sealed.append(self._seal_chunk(bytes(self._kept[:CHUNK_BYTES]), is_last=False))
            del self._kept[:CHUNK_BYTES]
        return b"".join(sealed)

    def finish(self) -> bytes:
        """Return the end of the sealed stream."""
        return self._take_head() + self._seal_chunk(bytes(self._kept), is_last=True)

    def _take_head(self) -> bytes:
        head, self._head = self._head, b""
        return head

    def _seal_chunk(self, chunk: bytes, *, is_last: bool) -> bytes:
        nonce = _CHUNK_NONCE.pack(self._number, is_last)
        self._number += 1
        return self._cipher.encrypt(nonce, chunk, None)


class StreamOpener:
    """Opens chunks of a sealed stream; `num_chunks` is their number, at least one."""

    def __init__(self, cipher: AESGCM, num_bytes: int) -> None:
        self.num_chunks = max(1, -(-num_bytes // CHUNK_BYTES))
        self._cipher = cipher

    def open(self, number: int, sealed: bytes) -> bytes:
        """Return the plaintext of one chunk, counted from 0.

        Raises:
            SealBroken: the bytes are not that chunk of this stream, whole and unchanged.
        """
        nonce = _CHUNK_NONCE.pack(number, number == self.num_chunks - 1)
        try:
            return self._cipher.decrypt(nonce, sealed, None)
        except InvalidTag:
            raise SealBroken("A chunk of a stored object cannot be opened.") from None


def sealed_bytes(num_bytes: int) -> int:
    """Return the length of a sealed stream of `num_bytes` plaintext bytes."""
    return SALT_BYTES + num_bytes + TAG_BYTES * max(1, -(-num_bytes // CHUNK_BYTES))


def chunk_span(number: int, num_bytes: int) -> tuple[int, int]:
    """Return the start and the end of a chunk in the sealed stream of `num_bytes` plaintext bytes."""
    start = SALT_BYTES + number * _SEALED_CHUNK_BYTES
    return start, min(start + _SEALED_CHUNK_BYTES, sealed_bytes(num_bytes))


def wrap_account_key(master_key: bytes, account: str) -> tuple[AccountKey, bytes]:
    """Return a new account key, and its wrapped form."""
    key = secrets.token_bytes(KEY_BYTES)
    return AccountKey(key), _seal(AESGCM(master_key), key, _account_key_label(account))


def unwrap_account_key(master_key: bytes, account: str, wrapped: bytes) -> AccountKey:
    """Return the account key that `wrap_account_key` wrapped.

    Raises:
        SealBroken: it was wrapped by another master key or for another account.
    """
    return AccountKey(_open(AESGCM(master_key), wrapped, _account_key_label(account)))


def _account_key_label(account: str) -> bytes:
    return b"manta account key\0" + account.encode()


def _data_key_label(object_id: str) -> bytes:
    return b"manta data key\0" + object_id.encode()


def _seal(cipher: AESGCM, content: bytes, label: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, content, label)


def _open(cipher: AESGCM, sealed: bytes, label: bytes) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], label)
    except (InvalidTag, ValueError):
        raise SealBroken("A stored object cannot be opened.") from None
