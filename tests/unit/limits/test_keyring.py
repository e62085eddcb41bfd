import pytest

from deployments.limits import core as keyring_module
from deployments.limits.core import Keyring
from deployments.state.identity.keys import StoredKey
from tests.unit.limits.memory import principal_of

NOW = 1_000.0


def key(revision: int, digest: bytes, previous: bytes | None = None, until: float | None = None, **values) -> StoredKey:
    return StoredKey(revision, "key", digest, previous, until, principal_of("key", **values))


def test_a_digest_names_its_holder_until_its_key_expires() -> None:
    keyring = Keyring()
    keyring.apply(1, [key(1, b"a", expires_at=NOW + 10)])
    assert keyring.identify(b"a", NOW).accepted_until == NOW + 10
    assert keyring.identify(b"a", NOW + 10).principal is None
    assert keyring.identify(b"b", NOW).principal is None


@pytest.mark.parametrize(("expires_at", "until"), [(None, NOW + 5), (NOW + 3, NOW + 3), (NOW + 9, NOW + 5)])
def test_a_previous_digest_holds_until_its_overlap_or_the_key_ends(expires_at: float | None, until: float) -> None:
    keyring = Keyring()
    keyring.apply(1, [key(1, b"new", b"old", NOW + 5, expires_at=expires_at)])
    assert keyring.identify(b"old", NOW).accepted_until == until
    assert keyring.identify(b"old", until).principal is None
    assert keyring.identify(b"new", NOW).accepted_until == expires_at


def test_a_rotation_without_overlap_ends_the_old_digest_at_once() -> None:
    keyring = Keyring()
    keyring.apply(1, [key(1, b"old")])
    keyring.apply(2, [key(2, b"new")])
    assert keyring.identify(b"old", NOW).principal is None
    assert keyring.identify(b"new", NOW).principal is not None
    assert keyring.changes_since(1) == [b"old", b"new"] or keyring.changes_since(1) == [b"new", b"old"]


def test_a_revoked_key_stands_for_nobody() -> None:
    keyring = Keyring()
    keyring.apply(1, [key(1, b"a")])
    keyring.apply(2, [StoredKey(2, "key", b"a", None, None, None)])
    assert keyring.identify(b"a", NOW).principal is None
    assert keyring.principal("key") is None
    assert keyring.changes_since(1) == [b"a"]


def test_what_is_older_than_known_changes_nothing() -> None:
    keyring = Keyring()
    keyring.apply(2, [key(2, b"new")])
    assert keyring.apply(1, [key(1, b"old")]) == []
    assert keyring.revision == 2
    assert keyring.identify(b"old", NOW).principal is None


def test_changes_from_before_the_start_are_not_known() -> None:
    keyring = Keyring()
    keyring.apply(5, [key(5, b"a")])
    keyring.start_here()
    assert keyring.changes_since(4) is None
    assert keyring.changes_since(5) == []
    keyring.apply(6, [key(6, b"a")])
    assert keyring.changes_since(5) == [b"a"]


def test_more_changes_than_are_remembered_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring_module, "_MAX_CHANGES", 3)
    keyring = Keyring()
    keyring._changes = type(keyring._changes)(maxlen=3)
    for revision in range(1, 8):
        keyring.apply(revision, [key(revision, b"a")])
    assert keyring.changes_since(3) is None
    assert keyring.changes_since(4) == [b"a"] * 3
