"""Certificates to test with, signed by an authority of the test's own."""

import datetime
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass
class Authority:
    """An authority that clients of a test believe."""

    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of a test")])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = (
            self._build(self._name, self._key).add_extension(basic, critical=True).sign(self._key, hashes.SHA256())
        )

    def context(self) -> ssl.SSLContext:
        """What a client needs to believe it."""
        return ssl.create_default_context(cadata=self.pem)

    @staticmethod
    def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
        """What a server needs to show a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    @property
    def pem(self) -> str:
        """The authority's own certificate."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, certificate: Path, key: Path, hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> int:
        """Write a new certificate of hosts, by default this machine's own, and its key; return its serial number."""
        own_key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_name_of(host) for host in hosts])
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        issued = self._build(name, own_key).add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        key.write_bytes(own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        certificate.write_bytes(issued.public_bytes(Encoding.PEM) + self._certificate.public_bytes(Encoding.PEM))
        return issued.serial_number

    def _build(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )


class CertificateFiles:
    """A certificate of an authority of its own, and its key, as files in a folder."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._names = names
        self.authority = Authority()
        self.certificate, self.key, self.trusted = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.trusted.write_text(self.authority.pem)
        self.serial = self.issue()

    def issue(self) -> int:
        return self.authority.issue(self.certificate, self.key, self._names)


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def serial_of(connection: ssl.SSLObject | ssl.SSLSocket) -> int:
    """Return the serial number of the certificate that a server has shown."""
    der = connection.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number
