"""`manta front`: the front of one node of a cluster, before the ingress replicas of all nodes."""

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
from serve_app.front.settings import FrontSettings, supervisor_command


def front(
    config: Annotated[
        Path | None,
        typer.Argument(help="The Serve configuration file; without one MANTA_PEPPER and MANTA_STATE_DIR are read."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",  # noqa: S104 - Clients come here.
    port: Annotated[int, typer.Option(help="The port for clients.")] = 8000,
    seed: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of another front, to ask for ingress replicas; may be repeated.")
    ] = None,
    dashboard: Annotated[
        str | None, typer.Option(help="The URL of Ray's dashboard, to ask for ingress replicas too.")
    ] = None,
    drain_s: Annotated[float, typer.Option(help="How long running requests may go on after SIGTERM.")] = 120.0,
) -> None:
    """Listen for clients on this node, and pass their requests to the ingress replicas of the cluster."""
    try:
        find_haproxy()
        pepper, state_dir, receive_timeout_s = _read_state(config, os.environ)
    except (ConfigError, HaproxyMissing) as error:
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
    )
    os.execv(sys.executable, supervisor_command(settings.save()))  # noqa: S606 - There is nothing for a shell to do.


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
