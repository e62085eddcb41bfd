"""The proofs by which fronts and ingress replicas trust each other."""

import hmac

import pytest

from deployments.proof import FrontTrust, is_same, new_nonce
from serve_app.front.settings import FrontSettings, load_settings
from serve_app.front.timings import FrontTimings

TRUST = FrontTrust.from_pepper(b"p" * 32)
OTHER = FrontTrust.from_pepper(b"q" * 32)
ID = "req_" + "0a" * 16


def signed(trust: FrontTrust, request_id: str) -> bytes:
    return f"{request_id} {hmac.digest(trust.request_key, request_id.encode(), 'sha256').hex()}".encode()


def test_request_id_of_our_front_is_taken_over() -> None:
    assert TRUST.request_id_of(signed(TRUST, ID)) == ID


@pytest.mark.parametrize(
    "value",
    [
        b"",
        ID.encode(),
        signed(OTHER, ID),
        signed(TRUST, "req_x"),
        signed(TRUST, ID) + b" ",
        signed(TRUST, ID)[:-1] + b"g",
    ],
)
def test_other_request_ids_are_not(value: bytes) -> None:
    assert TRUST.request_id_of(value) is None


def test_answer_is_no_question_and_belongs_to_its_nonce_and_body() -> None:
    nonce = new_nonce()
    proof = TRUST.prove_answer(nonce, b"body")
    assert is_same(proof, TRUST.prove_answer(nonce, b"body"))
    assert not is_same(proof, TRUST.prove_answer(nonce, b"other"))
    assert not is_same(proof, TRUST.prove_answer(new_nonce(), b"body"))
    assert not is_same(proof, OTHER.prove_answer(nonce, b"body"))
    assert not is_same(TRUST.prove_question(nonce), TRUST.prove_answer(nonce, b""))


def test_settings_are_read_as_they_were_saved_and_show_no_key(tmp_path) -> None:  # type: ignore[no-untyped-def]
    seeds, timings = ("a:1", "b:2"), FrontTimings(round_s=0.1)
    settings = FrontSettings(tmp_path / "front", "::", 8000, TRUST, seeds=seeds, timings=timings)
    path = settings.save()
    assert load_settings(path) == settings
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert TRUST.proof_key.hex() not in repr(settings)
    assert repr(TRUST.request_key) not in repr(settings)
