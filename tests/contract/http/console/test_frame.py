"""What all pages share: errors within the navigation, uploads by script, programs to paste."""

import ast
import json

import pytest

from serve_app.console.snippets import environment, programs
from tests.contract.http.console.conftest import FORM, SITE


async def test_an_error_keeps_the_navigation_and_leads_back(visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    came_from = {"referer": f"{SITE}/console/files?after=file-x"}
    page = await browser.read("/console/files?after=file-none", 404, headers={"referer": f"{SITE}/console/batches"})
    assert "no such file" in page
    assert 'href="/console/keys"' in page
    assert '<a class="button" href="/console/batches">Go back</a>' in page
    assert 'href="/console/files">Go back' in await browser.read("/console/nowhere", 404, headers=came_from)


@pytest.mark.parametrize("referer", ["", "http://[", "https://evil.test/else", f"{SITE}/console/sign-in"])
async def test_an_error_leads_to_the_overview_from_elsewhere(visit, secrets, referer):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    assert 'class="button" href="/console">' in await browser.read(
        "/console/nowhere", 404, headers={"referer": referer}
    )


async def test_an_upload_by_script_gets_its_error_as_json(visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["acct_one"])
    headers = {**FORM, "accept": "application/json", "x-csrf-token": browser.csrf}
    files = {"file": ("a.txt", b"a")}
    refused = await browser.http.post("/console/upload/file", data={"purpose": "?"}, files=files, headers=headers)
    assert refused.status_code == 400
    assert "Supported values" in refused.json()["error"]["message"]
    stored = await browser.http.post(
        "/console/upload/file", data={"purpose": "user_data"}, files=files, headers=headers
    )
    assert stored.headers["location"] == "/console/files?done=stored"
    assert (await visit().http.post("/console/upload/file", files=files, headers=headers)).status_code == 401


@pytest.mark.parametrize(("operation", "fields"), [("chat", {"messages"}), ("embeddings", {"input"})])
def test_programs_send_the_same_in_every_language(operation, fields):
    model = 'it\'s "m"'
    found = dict(programs(model, {operation}))
    assert list(found) == ["curl", "Python", "Node"]
    sent = json.loads(found["curl"].partition("-d '")[2].removesuffix("'").replace("'\\''", "'"))
    assert set(sent) == {"model", *fields}
    call = next(one for one in ast.walk(ast.parse(found["Python"])) if isinstance(one, ast.Call) and one.keywords)
    assert {one.arg: ast.literal_eval(one.value) for one in call.keywords} == sent
    assert all(f"  {name}: {json.dumps(value)},\n" in found["Node"] for name, value in sent.items())


def test_programs_need_an_operation_that_they_can_show():
    assert [language for language, _ in programs("m", {"rerank", "score"})] == ["curl"]
    assert programs("m", {"tokenize"}) == []


def test_the_environment_names_the_address_and_the_key():
    assert environment("http://m/v1", "sk-1") == "export OPENAI_BASE_URL=http://m/v1\nexport OPENAI_API_KEY=sk-1"


@pytest.mark.parametrize("path", ["/", "/favicon.ico"])
async def test_a_browser_finds_the_console_at_the_address_of_the_service(visit, path):
    browser = visit()
    answer = await browser.http.get(path, headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert answer.status_code == 303
    place = answer.headers["location"]
    assert place == "/console" if path == "/" else place.endswith("/manta.svg")
    assert (await browser.http.get(place, follow_redirects=True)).status_code == 200


async def test_without_a_console_a_browser_finds_the_reference(world):
    async with world.http(accept="text/html") as http:
        assert (await http.get("/")).headers["location"] == "/docs"


@pytest.mark.parametrize(
    ("method", "path", "hint"),
    [
        ("GET", "/", "Did you mean /v1? The base URL of a client ends with /v1."),
        ("POST", "/chat/completions", "Did you mean /v1/chat/completions?"),
        ("GET", "/batches", "Did you mean /v1/batches?"),
        ("POST", "/v1/v1/responses", "Did you mean /v1/responses? The base URL of a client has /v1 once"),
        (
            "POST",
            "/v1/v1/messages",
            "Did you mean /v1/messages? The base URL of a client has /v1 once, and that of Anth",
        ),
    ],
)
async def test_a_client_without_v1_is_told_so(world, method, path, hint):
    async with world.http() as http:
        error = (await http.request(method, path)).json()["error"]
    assert error["code"] == "unknown_url"
    assert hint in error["message"]


async def test_the_base_url_alone_leads_to_the_reference_and_the_console(visit):
    error = (await visit().http.get("/v1")).json()["error"]
    assert error["message"].endswith(" Its routes are at /docs, and the console is at /console.")


async def test_no_other_path_is_suggested_where_there_is_none(world):
    async with world.http() as http:
        for path in ("/nothing", "/v1/nothing", "/v1/v1", "/v1/v1/nothing"):
            assert (await http.get(path)).json()["error"]["message"] == f"Invalid URL (GET {path})"
