"""What keeps a Serve file from starting a service: one list of rules that yield faults."""

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.models.config import VLLM
from deployments.models.vllm_options import Parsers, engine_options, known_parsers, other_version, table_version
from deployments.models.whereabouts import SourceMissing, check_source, is_cached, is_on_hub, may_download
from serve_app.checks.document import ANY, Document, Pattern, Place
from serve_app.checks.sentences import Fault, did_you_mean, faults_in
from serve_app.checks.shapes import ARGS, IMPORT_PATH, MODELS, SETTINGS, SHAPES, Shape
from serve_app.errors.nearest import closest_to

Rule = Callable[[Document], Iterator[Fault]]

_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")
_APPLICATIONS: Pattern = ("applications", ANY)
_INTERPRETER: Pattern = (*ARGS, "tools", "code_interpreter")
_PARSERS: Mapping[str, Parsers] = {"tool_parser": "tool_parsers", "reasoning_parser": "reasoning_parsers"}


def repeated_names(document: Document) -> Iterator[Fault]:
    """A name stands twice in a section, so that the first value is lost."""
    for place, line in document.repeated():
        yield Fault(place[:-1], f'"{place[-1]}" is set twice, here and on line {line}', name=str(place[-1]))


def wrong_settings(document: Document) -> Iterator[Fault]:
    """One of Manta's own settings is unknown, is missing, or has a value that it cannot have."""
    yield from _wrong_in(document, (SETTINGS,))


def wrong_sections(document: Document) -> Iterator[Fault]:
    """The same of every section, also of those that are Ray's and vLLM's."""
    yield from _wrong_in(document, SHAPES)


def _wrong_in(document: Document, sections: Iterable[Shape]) -> Iterator[Fault]:
    for pattern, kind_of, is_vllm in sections:
        kind = kind_of()
        for place, value in document.find(pattern):
            if not isinstance(value, dict) and pattern:
                continue  # The section above says so.
            if pattern[: len(ARGS)] == ARGS and not _is_manta(document, place):
                continue
            if is_vllm and not _has_vllm(document, place[:-1]):
                continue
            faults = faults_in(value, kind, place)
            yield from map(_for_this_vllm if is_vllm else _for_the_engine, faults)


def unknown_applications(document: Document) -> Iterator[Fault]:
    """No application is Manta's, or one comes from a module that does not exist."""
    paths = [(place, path) for place, path in document.find((*_APPLICATIONS, "import_path")) if isinstance(path, str)]
    for place, path in paths:
        module = path.partition(":")[0]
        if _is_meant(path) and path != IMPORT_PATH:
            yield Fault(place, f'there is no "{path}". Did you mean "{IMPORT_PATH}"?')
        elif not _is_meant(path) and not _module_exists(module):
            yield Fault(place, f'there is no Python module "{module}" here', is_certain=False)
    is_bare = isinstance(document.content, dict) and document.content.get("applications") == []
    if is_bare or (paths and not any(_is_meant(path) for _, path in paths)):
        yield Fault(("applications",), f'none of them is Manta\'s, whose import_path is "{IMPORT_PATH}"')


def missing_settings(document: Document) -> Iterator[Fault]:
    """Manta's application has no settings."""
    for place, application in document.find(_APPLICATIONS):
        if isinstance(application, dict) and isinstance(place[-1], int) and _is_manta(document, place):
            is_misspelt = "args" not in application and closest_to("args", map(str, application)) is not None
            if not application.get("args") and not is_misspelt:
                yield Fault(place, 'the setting "args" is missing: it holds Manta\'s settings, with one model or more')


def impossible_port(document: Document) -> Iterator[Fault]:
    """The port is not one."""
    for place, port in document.find(("http_options", "port")):
        if isinstance(port, int) and not 0 < port < 65_536:
            yield Fault(place, f"should be from 1 to 65,535, not {port:,}")


def impossible_route(document: Document) -> Iterator[Fault]:
    """The path of an application is not one, which Ray sees only when it deploys."""
    for place, route in document.find((*_APPLICATIONS, "route_prefix")):
        if isinstance(route, str) and (
            not route.startswith("/") or "{" in route or (route != "/" and route[-1] == "/")
        ):
            yield Fault(place, f'should begin with / and not end with it, not "{route}"')


def unknown_parsers(document: Document) -> Iterator[Fault]:
    """VLLM has no parser of this name, and no plugin may have brought it."""
    for place, model in _models(document):
        options = model.get("engine_kwargs")
        options = options if isinstance(options, dict) else {}
        for setting, kind in _PARSERS.items():
            name, known = model.get(setting), known_parsers(kind)
            if isinstance(name, str) and name not in known and f"{setting}_plugin" not in options:
                advice = did_you_mean(name, known) or f". vLLM has {', '.join(known)}"
                yield _for_this_vllm(Fault((*place, setting), f'vLLM has no parser "{name}"{advice}'))


def unknown_engines(document: Document) -> Iterator[Fault]:
    """The module of an engine of the operator's own does not exist."""
    for place, model in document.find(MODELS):
        engine = model.get("engine") if isinstance(model, dict) else None
        module = engine.partition(":")[0] if isinstance(engine, str) else VLLM
        if module != VLLM and not _module_exists(module):
            yield Fault((*place, "engine"), f'there is no Python module "{module}"')


def impossible_resources(document: Document) -> Iterator[Fault]:
    """Ray has no such resource, or gives no such share of a GPU."""
    bundles = [
        (*MODELS, "placement_group_config", "bundles", ANY),
        (*MODELS, "placement_group_config", "bundle_per_worker"),
    ]
    options = [(*MODELS, "ray_actor_options", "resources"), (*_INTERPRETER, "ray_actor_options", "resources")]
    for pattern in [*bundles, *options]:
        for place, resources in document.find(pattern):
            for name in resources if isinstance(resources, dict) else ():
                meant = closest_to(name, _RESOURCES)
                if meant is not None and name not in _RESOURCES:
                    yield Fault(place, f'unknown resource "{name}". Did you mean "{meant}"?', name=str(name))
    for pattern in [*((*bundle, "GPU") for bundle in bundles), (*MODELS, "ray_actor_options", "num_gpus")]:
        for place, share in document.find(pattern):
            if isinstance(share, int | float) and share > 1 and share != int(share):
                yield Fault(place, f"should be a share of one GPU, up to 1, or a whole number of GPUs, not {share}")


def engines_across_nodes(document: Document) -> Iterator[Fault]:
    """Ray places the workers of an engine on GPUs, and vLLM may not do so itself."""
    for place, model in _models(document):
        options = model.get("engine_kwargs")
        backend = options.get("distributed_executor_backend", "ray") if isinstance(options, dict) else "ray"
        if model.get("device", "gpu") == "gpu" and backend != "ray":
            yield Fault((*place, "engine_kwargs", "distributed_executor_backend"), 'should be "ray", or be left out')


def impossible_cache(document: Document) -> Iterator[Fault]:
    """The size of a KV cache is not one."""
    for place, size in document.find((*MODELS, "env", "VLLM_CPU_KVCACHE_SPACE")):
        if isinstance(size, str) and not size.isdecimal():
            yield Fault(place, f'should be a whole number of GiB, not "{size}"')


def missing_files(document: Document) -> Iterator[Fault]:
    """A model, an adapter or a chat template is not where its setting says."""
    for place, model in _models(document):
        yield from _source(model.get("source"), (*place, "source"), model)
        adapters = model.get("adapters")
        for name, adapter in adapters.items() if isinstance(adapters, dict) else ():
            if isinstance(adapter, dict):
                yield from _source(
                    adapter.get("source"), (*place, "adapters", name, "source"), model, "adapter_config.json"
                )
        template = model.get("chat_template")
        if isinstance(template, str) and not any(sign in template for sign in "{}\n") and not Path(template).exists():
            yield Fault((*place, "chat_template"), f"there is no file {template} on this machine")


OF_THE_SETTINGS: tuple[Rule, ...] = (repeated_names, wrong_settings)
"""The rules for commands that only use Manta's settings, and have no time to import Ray."""

OF_THE_FILE: tuple[Rule, ...] = (
    repeated_names,
    wrong_sections,
    unknown_applications,
    missing_settings,
    impossible_port,
    impossible_route,
    unknown_parsers,
    impossible_resources,
    engines_across_nodes,
    impossible_cache,
)
"""The rules of the file alone: they say the same on every machine."""

ALL: tuple[Rule, ...] = (*OF_THE_FILE, unknown_engines, missing_files)
"""Those rules, and those that look for models, packages and paths on this machine."""


def _source(source: Any, place: Place, model: Mapping[str, Any], needed: str = "config.json") -> Iterator[Fault]:
    if not isinstance(source, str) or not source:
        return
    try:
        check_source(source, needed)
    except SourceMissing as missing:
        yield Fault(place, str(missing).removesuffix("."))
        return
    environ = model.get("env")
    given = {**os.environ, **environ} if isinstance(environ, dict) else os.environ
    if is_on_hub(source) and not is_cached(source) and not may_download({n: str(v) for n, v in given.items()}):
        advice = f"download it with `hf download {source}`, or remove HF_HUB_OFFLINE"
        yield Fault(
            place,
            f"{source} is not in this machine's cache of the hub, and HF_HUB_OFFLINE is set: {advice}",
            is_certain=False,
        )


def _models(document: Document) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the models that vLLM runs."""
    for place, model in document.find(MODELS):
        if isinstance(model, dict) and _is_manta(document, place) and model.get("engine", VLLM) == VLLM:
            yield place, model


def _has_vllm(document: Document, place: Place) -> bool:
    return any(found == place for found, _ in _models(document))


def _is_manta(document: Document, place: Place) -> bool:
    """Return whether a place is in Manta's application, or in one that is meant to be."""
    paths = [path for _, path in document.find((*place[:2], "import_path"))]
    return not paths or _is_meant(paths[0])


def _is_meant(import_path: Any) -> bool:
    return isinstance(import_path, str) and (
        import_path.startswith("serve_app.") or closest_to(import_path, (IMPORT_PATH,)) is not None
    )


def _for_the_engine(fault: Fault) -> Fault:
    """Return a fault, with a hint if it is an option of vLLM that stands beside `engine_kwargs`."""
    if fault.meant is not None or fault.name not in engine_options().model_fields:
        return fault
    return replace(fault, message=f"{fault.message}. vLLM's options stand in engine_kwargs")


def _for_this_vllm(fault: Fault) -> Fault:
    """Return a fault that rests on the table of vLLM's options; it is not certain if another vLLM is installed."""
    other = other_version()
    if other is None:
        return fault
    message = f"{fault.message} (checked against vLLM {table_version()}, but {other} is installed)"
    return replace(fault, message=message, is_certain=False)


def _module_exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False
