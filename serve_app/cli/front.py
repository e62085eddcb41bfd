"""`manta front`: the front of one node of a cluster, before the ingress replicas of all nodes."""

import ipaddress
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
import yaml

from deployments.config import ConfigError
from deployments.state.config import MIN_PEPPER_BYTES, StateConfig, resolve_state
from serve_app.cli.supervise.ports import front_stats_port
from serve_app.config import ServiceConfig, check_file
from serve_app.front.binary import HaproxyMissing, find_haproxy
from serve_app.front.certificate import CertificateFailed, read_certificate
from serve_app.front.files import make_private_folder, write_private
from serve_app.front.settings import FrontSettings, TlsFiles, supervisor_command

_NOT_PLAIN = (
    "{host} is an address that others reach, and without TLS they read keys and answers on the way. Give "
    "--tls-certificate and --tls-key, or say --plain-http where something before this front speaks TLS."
)


def front(
    config: Annotated[
        Path | None,
        typer.Argument(help="The Serve configuration file; without one MANTA_PEPPER and MANTA_STATE_DIR are read."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",  # noqa: S104 - Clients come here.
    port: Annotated[int, typer.Option(help="The port for clients.")] = 8000,
    seed: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT or https://HOST:PORT of another front, to ask for replicas; repeatable."),
    ] = None,
    dashboard: Annotated[
        str | None, typer.Option(help="The URL of Ray's dashboard, to ask for ingress replicas too.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="The certificate with its chain, in PEM; read again when the file changes.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate, in PEM.")] = None,
    redirect_port: Annotated[
        int | None, typer.Option(help="With TLS: a port where plain HTTP is sent on to TLS.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Listen without TLS on an address that others reach.")
    ] = False,
    drain_s: Annotated[float, typer.Option(help="How long running requests may go on after SIGTERM.")] = 120.0,
) -> None:
    """Listen for clients on this node, and pass their requests to the ingress replicas of the cluster."""
    try:
        find_haproxy()
        tls = _choose_tls(tls_certificate, tls_key, redirect_port)
        pem = read_certificate(tls) if tls is not None else ""
        if tls is None and not plain_http and not _is_loopback(host):
            raise ConfigError(_NOT_PLAIN.format(host=host))
        pepper, state_dir, receive_timeout_s = _read_state(config, os.environ)
    except (ConfigError, CertificateFailed, HaproxyMissing) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    settings = FrontSettings.of_service(
        state_dir,
        pepper,
        host=host,
        port=port,
        stats_port=front_stats_port(),
        receive_timeout_s=receive_timeout_s,
        drain_s=drain_s,
        seeds=tuple(seed or ()),
        dashboard=dashboard,
        tls=tls,
    )
    if tls is not None:
        make_private_folder(settings.run_dir)
        write_private(settings.certificate_path, pem)
    os.execv(sys.executable, supervisor_command(settings.save()))  # noqa: S606 - There is nothing for a shell to do.


def _choose_tls(certificate: Path | None, key: Path | None, redirect_port: int | None) -> TlsFiles | None:
    """Return the files of the certificate, None where there is none.

    Raises:
        ConfigError: only a part of what TLS needs is given.
    """
    if certificate is None and key is None:
        if redirect_port is not None:
            raise ConfigError("--redirect-port needs --tls-certificate and --tls-key.")
        return None
    if certificate is None or key is None:
        raise ConfigError("--tls-certificate and --tls-key go together.")
    return TlsFiles(str(certificate.absolute()), str(key.absolute()), redirect_port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_state(path: Path | None, environ: Mapping[str, str]) -> tuple[bytes, Path, float]:
    """Return the pepper, the state directory, and how long a body may take to arrive.

    Raises:
        ConfigError: the configuration is wrong, or a reference in it leads nowhere.
    """
    if path is None:
        config = ServiceConfig.model_fields["http"].default
        if pepper := environ.get("MANTA_PEPPER"):
            if len(pepper.encode()) < MIN_PEPPER_BYTES:
                raise ConfigError(f"MANTA_PEPPER is shorter than {MIN_PEPPER_BYTES} bytes.")
            return pepper.encode(), Path(environ.get("MANTA_STATE_DIR", ".manta")).absolute(), config.receive_timeout_s
        state = resolve_state(StateConfig(), environ)
        return state.pepper, state.state_dir, config.receive_timeout_s
    if faults := check_file(path):
        raise ConfigError("\n".join(faults))
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    service = ServiceConfig.model_validate(document["applications"][0].get("args") or {})
    state = resolve_state(service.state, environ)
    return state.pepper, state.state_dir, service.http.receive_timeout_s
