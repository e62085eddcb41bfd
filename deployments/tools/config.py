"""The settings of the tools that the service runs itself; a tool without settings is off."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from deployments.config import Reference, Section
from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.sandbox.limits import MIB, Limits

MEMORY_BYTES = {"1g": 1024 * MIB, "4g": 4096 * MIB, "16g": 16384 * MIB, "64g": 65536 * MIB}
MemoryLimit = Literal["1g", "4g", "16g", "64g"]
Address = Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]


class CodeInterpreterConfig(Section):
    """The code interpreter: replicas that each hold some containers, and keep sandboxes warm for new ones.

    Args:
        packages: the Python packages that code may import, with their dependencies; they must be installed beside the
            service.
        preload: modules that a warm sandbox has imported already.
        num_warm: how many sandboxes each replica keeps ready.
        max_containers: how many containers one replica holds; new ones are refused beyond that.
        max_containers_per_account: how many containers an account may have at once.
        idle_minutes: after how long without use a container ends.
        memory_limit: the memory of all processes of one container.
        work_mib: the size of the files of one container; they are in memory too.
        call_timeout_s: after how many seconds a call is interrupted.
        shell: whether containers have a shell and the usual programs of this host, which the tool `shell` needs.
        autoscaling_config, ray_actor_options: as Ray names them; the load of a replica is its containers.
    """

    retired: ClassVar[Mapping[str, str]] = {"num_processes": "a container may always run 32 processes now; remove it."}

    packages: tuple[str, ...] = ("numpy", "pandas", "matplotlib")
    preload: tuple[str, ...] = ("numpy", "pandas", "matplotlib.pyplot")
    num_warm: int = Field(default=2, ge=0, le=64)
    max_containers: int = Field(default=32, ge=1, le=1024)
    max_containers_per_account: int = Field(default=8, ge=1, le=1024)
    idle_minutes: int = Field(default=20, ge=1, le=20)
    memory_limit: MemoryLimit = "1g"
    work_mib: int = Field(default=256, ge=1, le=16384)
    call_timeout_s: float = Field(default=60.0, gt=0, le=600)
    shell: bool = False
    autoscaling_config: dict[str, Any] = Field(default_factory=lambda: {"min_replicas": 1, "max_replicas": 1})
    ray_actor_options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _warm_ones_fit(self) -> "CodeInterpreterConfig":
        if self.num_warm > self.max_containers:
            raise ValueError("num_warm is more than max_containers: keep fewer sandboxes ready, or hold more")
        return self

    @property
    def actor_options(self) -> dict[str, Any]:
        """Ray's options for the actor of a replica."""
        return {"num_cpus": 0.1, **self.ray_actor_options}

    @property
    def limits(self) -> Limits:
        """The bounds of each sandbox."""
        work_bytes = self.work_mib * MIB
        return Limits(
            memory_bytes=MEMORY_BYTES[self.memory_limit],
            work_bytes=work_bytes,
            file_bytes=work_bytes,
            call_s=self.call_timeout_s,
        )


class FileSearchConfig(Section):
    """Vector stores and the search over them.

    Args:
        embedding_model: the id of the model that turns text into vectors, one of the service's own. Stores keep the
            one that they were created with.
        inputs_per_call: how many pieces of text one call of that model carries at most.
        max_stores_per_account, max_files_per_store: how many there may be.
        max_file_mib: the largest file that can be searched.
        read_timeout_s, read_memory_mib: what reading one document may take; it is read in a process of its own.
    """

    embedding_model: str = Field(min_length=1)
    inputs_per_call: int = Field(default=256, ge=1, le=2048)
    max_stores_per_account: int = Field(default=1000, ge=1)
    max_files_per_store: int = Field(default=10_000, ge=1)
    max_file_mib: int = Field(default=64, ge=1, le=512)
    read_timeout_s: float = Field(default=120.0, gt=0, le=3600)
    read_memory_mib: int = Field(default=1024, ge=256, le=65536)


class SearXNGConfig(Section):
    """A SearXNG that the operator runs, whose settings switch the format `json` on; it may be at a private address.

    Args:
        name: `searxng`.
        url: the address of the SearXNG.
        engines: the engines to ask; by default all that are switched on.
        language: SearXNG's code for the language of results.
    """

    name: Literal["searxng"]
    url: Address
    engines: tuple[str, ...] = ()
    language: str | None = None


class BraveConfig(Section):
    """The Brave Search API.

    Args:
        name: `brave`.
        api_key: a reference to the key, never the key.
        url: the address of the API.
    """

    name: Literal["brave"]
    api_key: Reference
    url: Address = "https://api.search.brave.com"


class TavilyConfig(Section):
    """The Tavily Search API.

    Args:
        name: `tavily`.
        api_key: a reference to the key, never the key.
        url: the address of the API.
    """

    name: Literal["tavily"]
    api_key: Reference
    url: Address = "https://api.tavily.com"


class WebSearchConfig(Section):
    """Web search.

    Args:
        provider: the service that searches.
    """

    retired: ClassVar[Mapping[str, str]] = {
        "search_timeout_s": "a search always has 15 seconds now; remove it.",
        "page_timeout_s": "a page always has 20 seconds now; remove it.",
        "max_page_bytes": "a page may always have 5 MiB now; remove it.",
        "max_redirects": "5 redirects of a page are always followed now; remove it.",
    }

    provider: Annotated[SearXNGConfig | BraveConfig | TavilyConfig, Field(discriminator="name")]


class OutboundConfig(Section):
    """Where the tools may send requests that callers and models ask for: everywhere public, and where this allows.

    Args:
        allowed_networks: networks that are not public and may be reached all the same, such as 10.20.0.0/16.
        allowed_hosts: names of hosts that may be reached wherever they are.
        traced_hosts: names of hosts to which requests carry a W3C `traceparent`, where traces are on. No other host
            hears of traces.
    """

    allowed_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    allowed_hosts: frozenset[str] = frozenset()
    traced_hosts: frozenset[str] = frozenset()

    @property
    def rules(self) -> AddressRules:
        """The rules that requests are checked against."""
        return AddressRules(self.allowed_networks, _names_of(self.allowed_hosts), _names_of(self.traced_hosts))


def _names_of(hosts: Iterable[str]) -> frozenset[str]:
    return frozenset(host.lower().rstrip(".") for host in hosts)


class McpConfig(Section):
    """Remote MCP servers that requests name; `outbound` says where they may be.

    Args:
        allowed_servers: the only servers that requests may name, by their addresses, wherever they are. An address
            without a path stands for all of its host and port. Without this list any server that `outbound` allows.
        max_tools: how many tools of one server a response may use; those beyond are named in `allowed_tools`.
        timeout_s: how long a server may take for its list of tools, and for a call.
        max_answer_mib: how large one of its answers may be.
    """

    allowed_servers: tuple[Address, ...] | None = None
    max_tools: int = Field(default=64, ge=1, le=128)
    timeout_s: float = Field(default=60.0, gt=0, le=600)
    max_answer_mib: int = Field(default=4, ge=1, le=64)

    @property
    def max_answer_bytes(self) -> int:
        """The same in bytes."""
        return self.max_answer_mib * MIB


class ToolsConfig(Section):
    """The tools that the service runs itself, each off unless it is named; and where they may send requests."""

    outbound: OutboundConfig = OutboundConfig()
    code_interpreter: CodeInterpreterConfig | None = None
    file_search: FileSearchConfig | None = None
    mcp: McpConfig | None = None
    web_search: WebSearchConfig | None = None
