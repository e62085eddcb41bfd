"""Addresses as the kernel and as lists write them."""

from pathlib import Path

import pytest

from serve_app.front.addresses import Address, is_own, listening_on, parse_address

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n"


def table(path: Path, *rows: tuple[str, str]) -> Path:
    lines = [ROW.format(local=local, remote="00000000:0000", state=state) for local, state in rows]
    path.write_text(HEAD + "".join(lines))
    return path


def test_listening_sockets_in_the_range_are_found(tmp_path: Path) -> None:
    tcp = table(
        tmp_path / "tcp",
        ("0100007F:7530", "0A"),  # 127.0.0.1:30000
        ("00000000:7531", "0A"),  # every interface, port 30001
        ("0200000A:7532", "0A"),  # 10.0.0.2:30002
        ("0100007F:7533", "01"),  # an open connection
        ("0100007F:1F40", "0A"),  # port 8000
    )
    tcp6 = table(
        tmp_path / "tcp6",
        ("00000000000000000000000000000000:7534", "0A"),
        ("00000000000000000000000001000000:7535", "0A"),
        ("0000000000000000FFFF00000300000A:7536", "0A"),
    )
    assert listening_on(30000, 31000, (tcp, tcp6, tmp_path / "missing")) == {
        Address("127.0.0.1", 30000),
        Address("127.0.0.1", 30001),
        Address("10.0.0.2", 30002),
        Address("127.0.0.1", 30004),
        Address("::1", 30005),
        Address("10.0.0.3", 30006),
    }


@pytest.mark.parametrize("text", ["127.0.0.1:30000", "[::1]:30000", "[2001:db8::1]:1"])
def test_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["", "127.0.0.1", "localhost:1", "127.0.0.1:x", "1.2.3.4.5:6"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


def test_own_addresses_are_known() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.200")
