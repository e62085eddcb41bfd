"""A folder of one's own, where others may have been before."""

import os
from pathlib import Path

import pytest

from deployments.private_folder import make_private_folder, private_name


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_and_one_that_stood_open_are_its_owners_alone(tmp_path: Path) -> None:
    new, open_to_all = tmp_path / "deep" / "new", tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    for folder in (new, open_to_all):
        make_private_folder(folder)
        assert mode_of(folder) == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a folder to another user")
def test_another_users_folder_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with pytest.raises(PermissionError, match="Remove it"):
        make_private_folder(folder)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "link"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    link.symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="Remove it"):
        make_private_folder(link)
    assert mode_of(elsewhere) == 0o755


def test_folders_of_different_purposes_and_places_have_different_names() -> None:
    names = {private_name(purpose, Path(path)) for purpose in ("ray", "front") for path in ("/a", "/b")}
    assert len(names) == 4
