"""The port on which a replica of Serve's takes calls through handles."""

from typing import Any

import ray


def listen_on_own_address() -> None:
    """Have Serve open that port of this process on the node's address, by which others know it.

    Serve would have it on every address of the machine, and has no setting for it. It is opened after the deployment's
    constructor, which calls this.
    """
    from ray._common.tls_utils import add_port_to_grpc_server
    from ray.serve._private import replica  # noqa: TID251 - `Replica._on_initialized` names the address.

    def add_port(server: Any, address: str) -> int:
        host, port = ray.util.get_node_ip_address(), address.rpartition(":")[2]
        number: int = add_port_to_grpc_server(server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return number

    replica.add_port_to_grpc_server = add_port
