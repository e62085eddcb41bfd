"""Where `manta serve` has Ray's files."""

import os
from pathlib import Path

import pytest

from deployments.local_ray import choose_folder, close_token

SOCKET = "tmp/session_2026-11-27_23-59-59_999999_4194304/sockets/dash_MetricsHead"
MAX_SOCKET = 107


def test_rays_files_are_in_the_state_directory_while_its_sockets_fit() -> None:
    for state_dir in (Path("/home/manta/.manta"), Path("/") / ("x" * 80)):
        folder = choose_folder(state_dir, {})
        assert len(str(folder / SOCKET)) <= MAX_SOCKET
        assert (folder == state_dir / "ray") == (len(str(state_dir / "ray" / SOCKET)) <= MAX_SOCKET)
    longest = Path("/") / ("x" * (MAX_SOCKET - len(f"//ray/{SOCKET}")))
    assert choose_folder(longest, {}) == longest / "ray"
    assert choose_folder(Path(f"{longest}x"), {}) != Path(f"{longest}x") / "ray"


def test_rays_own_variable_says_where() -> None:
    folder = choose_folder(Path("/home/manta/.manta"), {"RAY_TMPDIR": "/data"})
    assert folder.parent == Path("/data")
    assert str(os.getuid()) in folder.name
    assert folder != choose_folder(Path("/home/other/.manta"), {"RAY_TMPDIR": "/data"})
    assert len(str(choose_folder(Path("/home/manta/.manta"), {"RAY_TMPDIR": "/scratch/manta"}) / SOCKET)) <= MAX_SOCKET


def test_a_token_that_others_could_read_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    close_token()  # There is none.
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    close_token()
    assert token.stat().st_mode & 0o777 == 0o600
