"""The guarded client against real servers: where it goes, where it does not, and how much it takes."""

import asyncio
import datetime
import gzip
import ssl
import zlib
from ipaddress import ip_address, ip_network

import httpx2
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deployments.tools.outbound.addresses import AddressRules, is_public
from deployments.tools.outbound.errors import AddressRefused, AnswerTooLarge, AnswerUnreadable, NoAnswer
from deployments.tools.outbound.fetching import FetchBounds, Fetcher
from deployments.tools.outbound.transport import GuardedTransport
from tests.contract.outbound.servers import answer_of, serving

LOOPBACK = AddressRules((ip_network("127.0.0.1/32"),))


class Names:
    """A resolver with given answers, each look-up in its turn, the last one for ever."""

    def __init__(self, **answers):
        self._answers = {name.replace("_", "."): list(told) for name, told in answers.items()}
        self.asked = []

    async def __call__(self, host, port):
        self.asked.append(host)
        told = self._answers.get(host)
        if not told:
            raise OSError("unknown")
        return told.pop(0) if len(told) > 1 else told[0]


async def fetch(url, rules=LOOPBACK, bounds=None, resolve=None, tls=None):
    fetcher = Fetcher(rules, bounds, resolve, tls)
    try:
        return await fetcher.fetch(url)
    finally:
        await fetcher.aclose()


async def _hello(path, writer):
    writer.write(answer_of(b"hello"))


async def test_a_page_is_fetched():
    async with serving(_hello) as server:
        page = await fetch(f"http://127.0.0.1:{server.port}/a?b=c#d")
    assert (page.status, page.content, page.content_type) == (200, b"hello", "text/plain")
    assert page.url == f"http://127.0.0.1:{server.port}/a?b=c"
    assert server.paths == ["/a?b=c"]
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n".lower() in server.heads[0].lower()


NOTATIONS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7F.1 017700000001 0177.0.0.1 0x7f.0x0.0x0.0x1 00000177.0.0.1
localhost LOCALHOST 0 0.0.0.0 [::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1]
[2002:7f00:1::] [::127.0.0.1] 127。0。0。1 a.example@127.0.0.1 a.example\\@127.0.0.1 127.0.0.1#.a.example
"""
NO_NAMES = "127.0.0.1. localhost. ①②⑦.0.0.1 １２７.0.0.1 127.0.0.1%00 [::1%25lo] %31%32%37.0.0.1"  # noqa: RUF001


@pytest.mark.parametrize("host", [*NOTATIONS.split(), *NO_NAMES.split()])
async def test_no_notation_reaches_a_server_on_loopback(host):
    async with serving(_hello) as first, serving(_hello, "::1") as second:
        for server in (first, second):
            with pytest.raises(AddressRefused if host in NOTATIONS.split() else (AddressRefused, NoAnswer)):
                await fetch(f"http://{host.replace('#', f':{server.port}#')}:{server.port}/", AddressRules())
        assert (first.num_connections, second.num_connections) == (0, 0)


async def test_no_address_of_this_machine_is_reached():
    own = [found.address for all_of_one in psutil.net_if_addrs().values() for found in all_of_one]
    async with serving(_hello, "0.0.0.0") as first, serving(_hello, "::") as second:
        for address in own:
            host = f"[{address}]" if ":" in address else address
            if not _is_local(address):
                continue
            for server in (first, second):
                with pytest.raises(AddressRefused):
                    await fetch(f"http://{host}:{server.port}/", AddressRules())
    assert (first.num_connections, second.num_connections) == (0, 0)


def _is_local(address):
    try:
        return not is_public(ip_address(address))
    except ValueError:  # That of a network card.
        return False


async def test_a_name_that_leads_to_a_private_address_is_not_followed():
    async with serving(_hello) as server:
        for told in (["127.0.0.1"], ["::1"], ["10.0.0.1", "127.0.0.1"], ["::ffff:127.0.0.1"]):
            with pytest.raises(AddressRefused, match="not on the public internet"):
                await fetch(f"http://a.example:{server.port}/", AddressRules(), resolve=Names(a_example=[told]))
    assert server.num_connections == 0


async def test_the_address_that_was_checked_is_the_one_connected_to():
    async with serving(_hello) as server, serving(_hello, "127.0.0.2") as private:
        names = Names(a_example=[["127.0.0.2", "127.0.0.1"], ["127.0.0.2"]])
        page = await fetch(f"http://a.example:{server.port}/", resolve=names)
    assert page.content == b"hello"
    assert names.asked == ["a.example"]
    assert f"\r\nhost: a.example:{server.port}\r\n" in server.heads[0].lower()
    assert private.num_connections == 0


async def test_a_name_that_leads_elsewhere_the_second_time_is_checked_again():
    async def _again(path, writer):
        writer.write(answer_of(status="302 Found", location="/secret", connection="close"))
        writer.close()

    names = Names(a_example=[["127.0.0.1"], ["127.0.0.2"]])
    async with serving(_again) as server:
        with pytest.raises(AddressRefused):
            await fetch(f"http://a.example:{server.port}/", resolve=names)
    assert (names.asked, server.paths) == (["a.example", "a.example"], ["/"])


@pytest.mark.parametrize(
    "location",
    [
        *("http://127.0.0.2:{port}/", "//127.0.0.2:{port}/", "http://2130706434:{port}/", "http://[::1]:{port}/"),
        *("http://169.254.169.254/latest/meta-data/", "http://user@127.0.0.1/", "http://127.0.0.1:22/", "http://["),
        *("file:///etc/passwd", "ftp://127.0.0.1/", "http://\x01/", "javascript:1", "data:text/plain,a"),
    ],
)
async def test_no_redirect_leads_where_a_request_may_not(location):
    async def _redirect(path, writer):
        writer.write(answer_of(status="302 Found", location=location.format(port=private.port)))

    async with serving(_hello, "127.0.0.2") as private, serving(_redirect) as server:
        with pytest.raises((AddressRefused, NoAnswer)):
            await fetch(f"http://127.0.0.1:{server.port}/")
    assert private.num_connections == 0
    assert len(server.heads) == 1


async def test_redirects_are_followed_and_counted():
    async def _count(path, writer):
        number = int(path[1:])
        told = answer_of(b"there") if number == 0 else answer_of(status="307 Again", location=f"/{number - 1}")
        writer.write(told)

    async with serving(_count) as server:
        page = await fetch(f"http://127.0.0.1:{server.port}/5")
        assert (page.content, page.url) == (b"there", f"http://127.0.0.1:{server.port}/0")
        with pytest.raises(NoAnswer, match="more than 5 times"):
            await fetch(f"http://127.0.0.1:{server.port}/6")


async def test_what_a_page_keeps_is_not_sent_to_the_next():
    async def _cookie(path, writer):
        writer.write(answer_of(status="302 Found", location="/b", set_cookie="a=b") if path == "/a" else answer_of())

    async with serving(_cookie) as server:
        await fetch(f"http://127.0.0.1:{server.port}/a")
    assert not any("cookie" in head.lower() for head in server.heads)


async def test_the_environment_neither_proxies_nor_logs_in(monkeypatch, tmp_path):
    async with serving(_hello) as proxy, serving(_hello) as server:
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login a password b\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        await fetch(f"http://127.0.0.1:{server.port}/")
    assert (proxy.num_connections, server.num_connections) == (0, 1)
    assert "authorization" not in server.heads[0].lower()


BIG = 1_000_000
EMPTY_BLOCK = b"\x00\x00\x00\xff\xff"  # Of deflate: five bytes that say nothing.


@pytest.mark.parametrize("kind", ["plain", "gzip", "deflate", "endless", "nothing but packing"])
async def test_no_more_is_taken_than_the_bound(kind):
    async def _much(path, writer):
        if kind == "plain":
            writer.write(answer_of(b"a" * BIG))
        elif kind == "gzip":
            writer.write(answer_of(gzip.compress(b"\0" * 100 * BIG), content_encoding="gzip"))
        elif kind == "deflate":
            writer.write(answer_of(zlib.compress(b"\0" * 100 * BIG), content_encoding="deflate"))
        else:
            packed = kind == "nothing but packing"
            writer.write(b"HTTP/1.1 200 OK\r\n" + (b"content-encoding: gzip\r\n" if packed else b"") + b"\r\n")
            writer.write(zlib.compressobj(wbits=31).compress(b"") if packed else b"")
            while not writer.is_closing():
                writer.write(EMPTY_BLOCK * 1000 if packed else b"a" * 1000)
                await asyncio.sleep(0)
                await writer.drain()

    async with serving(_much) as server:
        with pytest.raises(AnswerTooLarge):
            await fetch(f"http://127.0.0.1:{server.port}/", bounds=FetchBounds(max_bytes=BIG - 1, max_s=60))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
async def test_what_is_packed_is_unpacked(encoding):
    content = b"hello " * 1000
    packed = {"gzip": gzip.compress(content), "deflate": zlib.compress(content), "identity": content}[encoding]

    async def _packed(path, writer):
        writer.write(answer_of(packed, content_encoding=encoding))

    async with serving(_packed) as server:
        assert (await fetch(f"http://127.0.0.1:{server.port}/")).content == content
    assert "accept-encoding: gzip, deflate" in server.heads[0].lower()


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
async def test_other_packing_is_not_taken(encoding):
    async def _packed(path, writer):
        writer.write(answer_of(b"abc", content_encoding=encoding))

    async with serving(_packed) as server:
        with pytest.raises(AnswerUnreadable):
            await fetch(f"http://127.0.0.1:{server.port}/")


async def test_broken_packing_is_told():
    async def _broken(path, writer):
        writer.write(answer_of(b"not gzip at all", content_encoding="gzip"))

    async with serving(_broken) as server:
        with pytest.raises(AnswerUnreadable, match="not packed as it says"):
            await fetch(f"http://127.0.0.1:{server.port}/")


@pytest.mark.parametrize("when", ["head", "content", "redirects"])
async def test_whoever_is_slow_is_given_up(when):
    async def _slow(path, writer):
        if when == "redirects":
            await asyncio.sleep(0.2)
            writer.write(answer_of(status="302 Found", location="/"))
            return
        if when == "content":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(_slow) as server:
        with pytest.raises(NoAnswer):
            await fetch(f"http://127.0.0.1:{server.port}/", bounds=FetchBounds(max_s=0.5, max_redirects=1000))


async def test_a_name_that_is_never_found_is_given_up():
    async def _never(host, port):
        await asyncio.Event().wait()

    with pytest.raises(NoAnswer, match="too long"):
        await fetch("http://a.example/", bounds=FetchBounds(connect_s=0.1), resolve=_never)


@pytest.mark.parametrize("told", [b"", b"hello", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"])
async def test_what_is_no_answer_is_told(told):
    async def _wrong(path, writer):
        writer.write(told)
        await writer.drain()
        writer.close()

    async with serving(_wrong) as server:
        with pytest.raises(NoAnswer):
            await fetch(f"http://127.0.0.1:{server.port}/")


async def test_names_of_the_private_network_cannot_be_guessed():
    told = []
    for resolve in (Names(), Names(a_example=[["10.0.0.1"]])):
        with pytest.raises(AddressRefused) as refused:
            await fetch("http://a.example/", resolve=resolve)
        told.append(str(refused.value))
    assert told[0] == told[1]


async def test_a_host_that_is_not_there_is_told():
    with pytest.raises(NoAnswer, match="could not be found"):
        await fetch("http://a.example/", AddressRules(allowed_hosts=frozenset({"a.example"})), resolve=Names())
    async with serving(_hello) as server:
        pass
    with pytest.raises(NoAnswer, match="could not be reached"):
        await fetch(f"http://127.0.0.1:{server.port}/")
    for url in ("http://[", "http://" + "a" * 70 + ".example/", "http://a..b/"):
        with pytest.raises((AddressRefused, NoAnswer)):
            await fetch(url)


async def test_one_request_is_asked_as_it_is():
    async def _redirect(path, writer):
        writer.write(answer_of(b"x", status="302 Found", location="/elsewhere"))

    async with serving(_redirect) as server:
        fetcher = Fetcher(LOOPBACK)
        page = await fetcher.ask(
            "GET", f"http://127.0.0.1:{server.port}/s", headers={"x-key": "secret"}, params={"q": "a b&c"}
        )
        await fetcher.aclose()
    assert (page.status, page.is_success, server.paths) == (302, False, ["/s?q=a+b%26c"])
    assert "x-key: secret" in server.heads[0]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Contexts of both sides with a certificate for a.example alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.example")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    kept = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(kept + made.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=str(path))


async def test_tls_is_held_against_the_name_not_the_address(certificate):
    of_server, of_client = certificate
    named = []
    of_server.sni_callback = lambda _, name, __: named.append(name)
    names = Names(a_example=[["127.0.0.1"]], b_example=[["127.0.0.1"]])
    async with serving(_hello, tls=of_server) as server:
        page = await fetch(f"https://a.example:{server.port}/", resolve=names, tls=of_client)
        assert (page.content, named) == (b"hello", ["a.example"])
        with pytest.raises(NoAnswer, match="secure"):
            await fetch(f"https://b.example:{server.port}/", resolve=names, tls=of_client)
        with pytest.raises(NoAnswer, match="secure"):
            await fetch(f"https://a.example:{server.port}/", resolve=names)
    assert server.paths == ["/"]


async def test_https_does_not_redirect_to_http(certificate):
    of_server, of_client = certificate

    async def _down(path, writer):
        writer.write(answer_of(status="302 Found", location=f"http://a.example:{plain.port}/"))

    names = Names(a_example=[["127.0.0.1"]])
    async with serving(_hello) as plain, serving(_down, tls=of_server) as server:
        with pytest.raises(AddressRefused, match="from https to http"):
            await fetch(f"https://a.example:{server.port}/", resolve=names, tls=of_client)
    assert plain.num_connections == 0


async def test_clients_of_httpx2_are_guarded_by_the_same_transport():
    async def _bomb(path, writer):
        writer.write(answer_of(gzip.compress(b"\0" * 100 * BIG), content_encoding="gzip"))

    async with serving(_bomb) as server:
        transport = GuardedTransport(LOOPBACK, max_bytes=BIG)
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            with pytest.raises(AnswerTooLarge):
                await client.get(f"http://127.0.0.1:{server.port}/")
            with pytest.raises(httpx2.TransportError):
                await client.post("http://127.0.0.2/", json={})
            with pytest.raises(AddressRefused):
                await client.get("http://127.0.0.1:25/")
