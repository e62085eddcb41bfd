"""The files of a front's certificate, as they are read."""

from pathlib import Path

import pytest

from serve_app.front.certificate import CertificateFailed, read_certificate
from serve_app.front.settings import TlsFiles
from tests.certificates import Authority


def test_files_that_are_no_pair_are_named(tmp_path: Path) -> None:
    authority = Authority()
    files, other = (TlsFiles(str(tmp_path / f"{name}.crt"), str(tmp_path / f"{name}.key")) for name in ("tls", "other"))
    authority.issue(Path(files.certificate), Path(files.key))
    assert read_certificate(files).count("-----BEGIN") == 3
    assert "\n\n" not in read_certificate(files)
    with pytest.raises(CertificateFailed, match=r"other.crt and .*other.key: No such file"):
        read_certificate(other)
    authority.issue(Path(other.certificate), Path(other.key))
    with pytest.raises(CertificateFailed, match="key values mismatch"):
        read_certificate(TlsFiles(files.certificate, other.key))
