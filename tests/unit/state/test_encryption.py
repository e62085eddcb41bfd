"""What is sealed opens again, and nothing else does."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.encryption.sealing import (
    CHUNK_BYTES,
    SALT_BYTES,
    AccountKey,
    DataKey,
    SealBroken,
    chunk_span,
    sealed_bytes,
    unwrap_account_key,
    wrap_account_key,
)

ACCOUNT_KEY = AccountKey(b"a" * 32)
KEY = DataKey("file-1", b"k" * 32)
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 5]


def seal(content: bytes, *cuts: int, key: DataKey = KEY, label: bytes = b"content") -> bytes:
    sealer = key.new_stream(label)
    places = [0, *sorted(cuts), len(content)]
    pieces = [sealer.update(content[a:b]) for a, b in itertools.pairwise(places)]
    return b"".join([*pieces, sealer.finish()])


def chunk(sealed: bytes, number: int, num_bytes: int) -> bytes:
    start, stop = chunk_span(number, num_bytes)
    return sealed[start:stop]


def unseal(sealed: bytes, num_bytes: int, key: DataKey = KEY, label: bytes = b"content") -> bytes:
    opener = key.open_stream(sealed[:SALT_BYTES], label, num_bytes)
    return b"".join(opener.open(number, chunk(sealed, number, num_bytes)) for number in range(opener.num_chunks))


def test_a_piece_opens_under_its_own_label_only() -> None:
    sealed = KEY.seal(b"a secret", b"part 1")
    assert b"a secret" not in sealed
    assert KEY.open(sealed, b"part 1") == b"a secret"
    with pytest.raises(SealBroken):
        KEY.open(sealed, b"part 2")
    with pytest.raises(SealBroken):
        DataKey("file-2", b"k" * 32).open(sealed, b"part 1")


def test_streams_that_were_sealed_before_open() -> None:
    sealed = bytes.fromhex(
        "6465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80818283"
        "57f87921e119fbef899084b727a12a12dc83c14e0ae5d240e8250fb2f6d9db4bac8a2f1634785f59500572"
    )
    content = b"The moon is made of cheese."
    assert unseal(sealed, len(content), DataKey("file-1", bytes(range(32)))) == content


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b"", lambda b: b[:8], lambda b: b[:20] + bytes([b[20] ^ 0xFF]) + b[21:]]
)
def test_a_changed_piece_does_not_open(spoil) -> None:
    with pytest.raises(SealBroken):
        KEY.open(spoil(KEY.seal(b"some content that is long enough", b"x")), b"x")


def test_the_same_content_never_looks_the_same() -> None:
    assert KEY.seal(b"same", b"x") != KEY.seal(b"same", b"x")
    assert seal(b"same") != seal(b"same")


def test_a_data_key_opens_for_its_object_and_account_only() -> None:
    key, wrapped = ACCOUNT_KEY.new_object("file-1")
    sealed = key.seal(b"content", b"x")
    assert ACCOUNT_KEY.open_object("file-1", wrapped).open(sealed, b"x") == b"content"
    with pytest.raises(SealBroken):
        ACCOUNT_KEY.open_object("file-2", wrapped)
    with pytest.raises(SealBroken):
        AccountKey(b"b" * 32).open_object("file-1", wrapped)


def test_an_account_key_opens_for_its_account_and_master_key_only() -> None:
    key, wrapped = wrap_account_key(b"m" * 32, "acct")
    _, wrapped_object = key.new_object("file-1")
    unwrap_account_key(b"m" * 32, "acct", wrapped).open_object("file-1", wrapped_object)
    with pytest.raises(SealBroken):
        unwrap_account_key(b"m" * 32, "other", wrapped)
    with pytest.raises(SealBroken):
        unwrap_account_key(b"n" * 32, "acct", wrapped)


@pytest.mark.parametrize("num_bytes", SIZES)
def test_a_stream_opens_whole_and_has_the_length_foretold(num_bytes: int) -> None:
    content = bytes(number % 251 for number in range(num_bytes))
    sealed = seal(content, num_bytes // 3)
    assert len(sealed) == sealed_bytes(num_bytes)
    assert unseal(sealed, num_bytes) == content


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_any_split_of_a_stream_opens_to_the_same(start: bytes, cuts: list[int]) -> None:
    content = start + b"x" * CHUNK_BYTES + start
    assert unseal(seal(content, *[cut * 200 % (len(content) + 1) for cut in cuts]), len(content)) == content


def test_a_stream_cannot_be_cut_off_at_a_chunk() -> None:
    sealed = seal(b"a" * (2 * CHUNK_BYTES))
    with pytest.raises(SealBroken):
        unseal(sealed[: sealed_bytes(CHUNK_BYTES)], CHUNK_BYTES)


def test_chunks_cannot_change_places() -> None:
    num_bytes = 3 * CHUNK_BYTES
    sealed = seal(b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES + b"c" * CHUNK_BYTES)
    opener = KEY.open_stream(sealed[:SALT_BYTES], b"content", num_bytes)
    with pytest.raises(SealBroken):
        opener.open(0, chunk(sealed, 1, num_bytes))


def test_a_stream_opens_under_its_own_label_and_object_only() -> None:
    sealed = seal(b"content")
    with pytest.raises(SealBroken):
        unseal(sealed, 7, label=b"other")
    with pytest.raises(SealBroken):
        unseal(sealed, 7, key=DataKey("file-2", b"k" * 32))
    with pytest.raises(SealBroken):
        unseal(bytes(SALT_BYTES) + sealed[SALT_BYTES:], 7)
