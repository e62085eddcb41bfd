"""Which addresses the service may send requests to."""

from ipaddress import ip_address, ip_network

import httpx2
import pytest

from deployments.tools.config import OutboundConfig
from deployments.tools.outbound.addresses import AddressRules, is_public
from deployments.tools.outbound.errors import AddressRefused

PUBLIC = """
1.1.1.1 8.8.8.8 172.15.255.255 172.32.0.1 100.63.255.255 100.128.0.1 169.253.0.1 223.255.1.1 2606:4700::1111
2a00:1450:4001::1 2001:4860:4860::8888
"""


@pytest.mark.parametrize("address", PUBLIC.split())
def test_addresses_of_the_internet_are_public(address):
    assert is_public(ip_address(address))


NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254
172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.7
203.0.113.7 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1
::ffff:8.8.8.8 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::a00:1 100::1 2001::1
2001:0:7f00:1:: 2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1
fe80::1%eth0 fec0::1 ff02::1
"""


@pytest.mark.parametrize("address", NOT_PUBLIC.split())
def test_everything_else_is_not(address):
    assert not is_public(ip_address(address))


def test_an_operator_opens_networks_and_hosts():
    given = {"allowed_networks": ["10.20.0.0/16", "fd00::/8"], "allowed_hosts": ["Search.Internal."]}
    rules = OutboundConfig.model_validate(given).rules
    assert rules.choose("a.example", ["10.20.1.2", "10.21.1.2", "fd12::1", "1.1.1.1"]) == [
        "10.20.1.2",
        "fd12::1",
        "1.1.1.1",
    ]
    assert rules.choose("search.internal", ["10.99.0.1"]) == ["10.99.0.1"]
    assert rules.choose("SEARCH.internal.", ["::1"]) == ["::1"]
    with pytest.raises(AddressRefused, match="not on the public internet"):
        rules.choose("a.search.internal", ["10.99.0.1"])


def test_nothing_but_the_internet_is_open_of_itself():
    rules = OutboundConfig().rules
    assert rules == AddressRules()
    with pytest.raises(AddressRefused):
        rules.choose("a.example", ["10.0.0.1", "::1"])
    with pytest.raises(AddressRefused):
        rules.choose("a.example", [])


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://a.example/", "http://"),
        ("file:///etc/passwd", "http://"),
        ("gopher://a.example/", "http://"),
        ("javascript:alert(1)", "http://"),
        ("//a.example/", "http://"),
        ("/etc/passwd", "http://"),
        ("http://", "no host"),
        ("http:///path", "no host"),
        ("http://user@a.example/", "password"),
        ("http://user:password@a.example/", "password"),
        ("http://a.example\\@b.example/", "password"),
        ("http://a.example:22/", "Port 22"),
        ("https://a.example:25/", "Port 25"),
        ("http://a.example:99999/", "Port 99999"),
    ],
)
def test_no_request_is_sent_to(url, reason):
    with pytest.raises(AddressRefused, match=reason):
        AddressRules().check_url(httpx2.URL(url))


@pytest.mark.parametrize(
    "url", ["http://a.example", "https://a.example:80/", "http://a.example:8080/", "https://[::1]/"]
)
def test_a_request_may_be_sent_to(url):
    AddressRules().check_url(httpx2.URL(url))


def test_a_named_host_may_have_any_port():
    rules = AddressRules((ip_network("10.0.0.0/8"),), frozenset({"search"}))
    rules.check_url(httpx2.URL("http://search:81/"))
    with pytest.raises(AddressRefused):
        rules.check_url(httpx2.URL("http://10.0.0.1:81/"))
