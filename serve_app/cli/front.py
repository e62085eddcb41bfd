"""`manta front`: the load balancer of one node, before the ingress replicas of all nodes."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from deployments.config import ConfigError
from deployments.proof import FrontTrust
from deployments.state.config import MIN_PEPPER_BYTES, StateConfig, resolve_state
from deployments.state.regions import ResolvedRegion
from deployments.state.regions.config import RegionConfig, resolve_region
from serve_app.checks.check import read_file
from serve_app.checks.rules import OF_THE_SETTINGS
from serve_app.checks.sentences import faults_in
from serve_app.cli.supervise.front import (
    check_encrypted,
    choose_bound,
    choose_tls,
    front_stats_host,
    front_stats_port,
    ingress_tls,
)
from serve_app.config import HttpConfig
from serve_app.front.certificate import CertificateFailed, write_copies
from serve_app.front.settings import FrontSettings, IngressTls, choose_run_dir, supervisor_command
from serve_app.front.supervisor import HaproxyMissing, find_haproxy


def front(
    config: Annotated[
        Path | None,
        typer.Argument(help="The Serve configuration file; by default MANTA_PEPPER and MANTA_STATE_DIR are used."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",  # noqa: S104 - Clients come here.
    port: Annotated[int, typer.Option(help="The port for clients.")] = 8000,
    seed: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT or https://HOST:PORT of another front, to learn of replicas. Repeatable."),
    ] = None,
    dashboard: Annotated[
        str | None, typer.Option(help="The URL of Ray's dashboard, to learn of ingress replicas too.")
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="The certificate for clients with its chain, in PEM; by default that of http.tls."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate, in PEM.")] = None,
    redirect_port: Annotated[
        int | None, typer.Option(help="With TLS: a port that redirects plain HTTP to HTTPS.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Listen without TLS on an address that others reach.")
    ] = False,
    region: Annotated[
        str | None, typer.Option(help="The name of this front's region; by default that of the configuration.")
    ] = None,
    other_region: Annotated[
        list[str] | None, typer.Option(help="NAME=https://HOST:PORT, the fronts of another region. Repeatable.")
    ] = None,
    region_authority: Annotated[
        Path | None, typer.Option(help="CA file for verifying other regions; by default the system's authorities.")
    ] = None,
    ingress_authority: Annotated[
        Path | None, typer.Option(help="Use TLS to ingress replicas, and verify them with this CA file (PEM).")
    ] = None,
    ingress_name: Annotated[str, typer.Option(help="The DNS name in the certificates of ingress replicas.")] = "manta",
    max_connections: Annotated[
        int | None,
        typer.Option(min=1, help="How many connections one address may have; by default that of the configuration."),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(help="An address or network before this front whose connections are not counted. Repeatable."),
    ] = None,
    drain_s: Annotated[float, typer.Option(help="How long running requests may continue after SIGTERM.")] = 120.0,
) -> None:
    """Run the load balancer of this node: it passes requests to the ingress replicas of the cluster."""
    try:
        find_haproxy()
        service = _read_service(config, os.environ)
        tls = choose_tls(service.http, tls_certificate, tls_key, redirect_port, plain_http=plain_http)
        check_encrypted(host, tls, plain_http=plain_http)
        chosen_region = _choose_region(region, other_region, region_authority) or service.region
        own_tls = service.ingress_tls
        if ingress_authority is not None:
            own_tls = IngressTls(str(ingress_authority.absolute()), ingress_name)
        settings = FrontSettings(
            choose_run_dir(service.state_dir),
            host,
            port,
            FrontTrust.from_pepper(service.pepper),
            stats_host=front_stats_host(),
            stats_port=front_stats_port(),
            receive_timeout_s=service.http.receive_timeout_s,
            address_bound=choose_bound(service.http, tls, chosen_region, max_connections, trusted_proxy or ()),
            drain_s=drain_s,
            seeds=tuple(seed or ()),
            dashboard=dashboard,
            tls=tls,
            region=chosen_region,
            ingress_tls=own_tls,
        )
        write_copies(settings)
    except (ConfigError, CertificateFailed, HaproxyMissing) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    os.execv(sys.executable, supervisor_command(settings.save()))  # noqa: S606 - There is nothing for a shell to do.


def _choose_region(name: str | None, others: list[str] | None, authority: Path | None) -> ResolvedRegion | None:
    """Return the region in the options, None without --region.

    Raises:
        ConfigError: options are missing, or an address is not valid.
    """
    if name is None:
        if others or authority:
            raise ConfigError("--other-region and --region-authority need --region.")
        return None
    named = dict(other.partition("=")[::2] for other in others or ())
    given = {"name": name, "others": {key: {"address": at} for key, at in named.items()}}
    if faults := faults_in(given, RegionConfig):
        raise ConfigError("\n".join(f"--region, --other-region: {fault.message}" for fault in faults))
    config = RegionConfig.model_validate(given)
    return replace(resolve_region(config), certificate_authority=None if authority is None else authority.absolute())


@dataclass(frozen=True, slots=True)
class _Service:
    """What a front needs to know about its service."""

    pepper: bytes
    state_dir: Path
    http: HttpConfig
    region: ResolvedRegion | None = None
    ingress_tls: IngressTls | None = None


def _read_service(path: Path | None, environ: Mapping[str, str]) -> _Service:
    """Return the service in the configuration file, or in the environment if there is no file.

    Raises:
        ConfigError: the configuration is wrong, or a reference in it cannot be read.
    """
    if path is None:
        if pepper := environ.get("MANTA_PEPPER"):
            if len(pepper.encode()) < MIN_PEPPER_BYTES:
                raise ConfigError(f"MANTA_PEPPER is shorter than {MIN_PEPPER_BYTES} bytes.")
            state_dir = Path(environ.get("MANTA_STATE_DIR", ".manta")).absolute()
            return _Service(pepper.encode(), state_dir, HttpConfig())
        state = resolve_state(StateConfig(), environ)
        return _Service(state.pepper, state.state_dir, HttpConfig())
    _, service = read_file(path, OF_THE_SETTINGS)
    state = resolve_state(service.state, environ, service.region)
    return _Service(state.pepper, state.state_dir, service.http, state.region, ingress_tls(service))
