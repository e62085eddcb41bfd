"""Usage and the request log in the console: figures add up, filters hold, and files have what the pages show."""

import csv
import html
import io
import re
from datetime import UTC, datetime
from time import time

import pytest

from deployments.models.price import PriceConfig, Prices, show_money
from deployments.state.identity.keys import NewKey
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageStore
from tests.contract.http.answers import MODEL


def request(number, key_id, model=MODEL, **more):
    values = {
        "at": time(),
        "account": "acct_one",
        "tier": "standard",
        "method": "POST",
        "route": "/v1/chat/completions" if model else "/v1/files",
        "status": 200,
        "code": None,
        "stream": False,
        "prompt_tokens": 10 if model else 0,
        "completion_tokens": 4 if model else 0,
        "cached_tokens": 1 if model else 0,
        "ttft_s": None,
        "total_s": 0.5,
    }
    return RequestRecord(request_id=f"req_{number:032}", key_id=key_id, model=model, **values | more)


@pytest.fixture
async def keys(key_store, console):
    return [(await key_store.create(NewKey(account="acct_one", name=f"program {n}")))[0] for n in range(2)]


@pytest.fixture
async def log(key_store, keys):
    """Three model calls of one key, one of them failed; one of another key; two other requests; one of a stranger."""
    first, second = (key.key_id for key in keys)
    await UsageStore(key_store._database).add(
        [
            request(1, first, input_cost=2 * 10**12),
            request(2, first, model="other/model"),
            request(3, first, status=400, code="unsupported_value", param="temperature", prompt_tokens=0),
            request(
                4, second, at=time() - 3 * 86_400, stream=True, ttft_s=0.1, completion_tokens=5, service_tier="flex"
            ),
            request(5, first, model=None),
            request(6, second, model=None, status=429, code="rate_limit_exceeded", param="requests_per_minute"),
            request(7, "key_theirs", account="acct_two", model="their/model"),
        ]
    )


@pytest.fixture
async def operator(visit, secrets):
    browser = visit()
    await browser.sign_in(secrets["ops"])
    return browser


def text_of(page):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page.partition("<main")[2])))


def rows_of(page):
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return [text_of("<main" + row).strip().split() for row in body.split("<tr>")[1:]]


async def test_model_calls_and_other_requests_add_up(holder, log):
    for path in ("/console?span=month", "/console/usage"):
        text = text_of(await holder.read(path))
        assert "Model calls 4 1 failed" in text, path
        assert "Other and refused requests 2 1 failed, 1 over a limit" in text, path
        assert "Prompt tokens 30 4 cached" in text, path
        assert "Completion tokens 17" in text, path
        assert "their/model" not in text


@pytest.mark.parametrize(
    ("group", "rows"),
    [
        ("model", {MODEL: (3, 0), "other/model": (1, 0), "no": (0, 2)}),
        ("key", {"program 0": (3, 1), "program 1": (1, 1)}),
    ],
)
async def test_usage_by_group_adds_up_to_the_whole(holder, log, group, rows):
    page = await holder.read(f"/console/usage?group={group}")
    body = page.partition("<tbody>")[2]
    for label, (calls, other) in rows.items():
        cells = re.search(rf"{re.escape(label)}.*?</tr>", body, re.DOTALL)[0]
        numbers = re.findall(r'<td class="num">([\d,]+)</td>', cells)
        assert (int(numbers[0]), int(numbers[2])) == (calls, other)
    assert body.count("<tr>") == len(rows)
    for place in re.findall(r'<a href="(/console/requests[^"]+)"', body):
        assert "/console/requests/req_" in await holder.read(html.unescape(place))


async def test_the_file_has_the_same_by_period(holder, log, keys):
    answer = await holder.http.get("/console/usage?group=key&format=csv")
    assert answer.headers["content-disposition"].startswith("attachment")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["key_id"] for row in rows} == {key.key_id for key in keys}
    sums = {name: sum(float(row[name]) for row in rows) for name in rows[0] if name not in ("start_time", "key_id")}
    assert sums == {
        "model_calls": 4,
        "num_errors": 1,
        "prompt_tokens": 30,
        "cached_tokens": 4,
        "completion_tokens": 17,
        "other_requests": 2,
        "cost": 2,
    }
    assert len(rows) == 3  # The other key, on another day.


async def test_the_chosen_days_bound_what_is_shown(holder, log):
    today = datetime.now(UTC).date().isoformat()
    assert "Model calls 3 " in text_of(await holder.read(f"/console/usage?from={today}&to={today}"))
    for wrong in ("from=x", "from=2026-01-02&to=2026-01-01", "from=1900-01-01", "from=2020-01-01"):
        await holder.read(f"/console/usage?{wrong}", 400)


async def test_an_operator_sees_usage_by_account_and_an_account_holder_does_not(holder, operator, log):
    page = await operator.read("/console/usage?group=account")
    assert ["acct_one", "4"] in [row[:2] for row in rows_of(page)]
    assert ["acct_two", "1"] in [row[:2] for row in rows_of(page)]
    assert "Model calls 1 " in text_of(await operator.read("/console/usage?account=acct_two"))
    for query in ("group=account", "account=acct_two"):
        assert "acct_two" not in text_of(await holder.read(f"/console/usage?{query}"))


@pytest.fixture
def priced(world):
    world.prices = Prices({MODEL: PriceConfig(input=1)})


async def test_a_cost_is_shown_where_there_are_prices(priced, holder, log):
    text = text_of(await holder.read("/console/usage"))
    assert "Cost 2.00 USD" in text
    assert "no prices set" not in text


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "0"),
        (0.00001215, "0.00001215"),
        (0.00001234567, "0.0000123457"),
        (0.075, "0.075"),
        (0.5, "0.50"),
        (2, "2.00"),
        (1234.56789, "1,234.5679"),
    ],
)
def test_a_small_cost_is_not_shown_as_zero(amount, shown):
    assert show_money(amount) == shown


async def test_the_file_has_exact_costs(holder, key_store, keys):
    await UsageStore(key_store._database).add([request(1, keys[0].key_id, input_cost=12_150_001)])
    answer = await holder.http.get("/console/usage?format=csv")
    assert [row["cost"] for row in csv.DictReader(io.StringIO(answer.text))] == ["0.000012150001"]


async def test_without_prices_there_is_no_cost(holder, key_store, keys):
    await UsageStore(key_store._database).add([request(1, keys[0].key_id)])
    for path in ("/console", "/console/usage"):
        page = await holder.read(path)
        assert "Cost no prices set" in text_of(page)
        assert 'href="/docs/guide/operate/usage#prices"' in page


async def test_a_new_account_gets_its_first_program_until_it_has_called_a_model(
    world, holder, secrets, key_store, keys
):
    page = await holder.read("/console")
    key = await key_store.show(world.gatekeeper.principals[secrets["acct_one"]].key_id)
    assert "http://manta.test/v1" in page
    assert "OPENAI_BASE_URL=http://manta.test/v1" in page
    assert key.display in page
    assert MODEL in page
    await UsageStore(key_store._database).add([request(1, keys[0].key_id)])
    assert "OPENAI_BASE_URL" not in await holder.read("/console")


async def test_the_log_is_filtered_by_key_and_time_and_sent_as_a_file(holder, log, keys):
    second = keys[1].key_id
    day = datetime.fromtimestamp(time() - 86_400, UTC).strftime("%Y-%m-%dT%H:%M")
    for query, numbers in (
        (f"key_id={second}", [6, 4]),
        (f"to={day}", [4]),
        (f"from={day}&state=error", [6, 3]),
        ("code=rate_limit_exceeded", [6]),
    ):
        page = await holder.read(f"/console/requests?{query}")
        found = re.findall(r"/console/requests/req_0*(\d+)", page)
        assert sorted(map(int, found), reverse=True) == numbers, query
        answer = await holder.http.get(f"/console/requests.csv?{query}")
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert sorted((int(row["request_id"].removeprefix("req_")) for row in rows), reverse=True) == numbers
    await holder.read("/console/requests?from=yesterday", 400)
    assert "their/model" not in (await holder.http.get("/console/requests.csv?account=acct_two")).text


async def test_the_log_shows_speed_service_tier_key_and_cost(holder, log):
    page = await holder.read("/console/requests?state=ok")
    text = text_of(page)
    assert "program 1" in text
    assert "flex" in text
    assert "10.0" in text  # Four tokens in 0.4 seconds.
    assert "2.00" in text
    assert "0.00" not in text
    assert "stream" in text


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (3, "Parameter: temperature . Code: unsupported_value"),
        (6, "requests for this minute. Limit: requests_per_minute"),
    ],
)
async def test_a_request_says_what_was_at_fault(holder, log, number, words):
    assert words in text_of(await holder.read(f"/console/requests/req_{number:032}"))


async def test_a_request_leads_to_its_response_and_back(world, holder, secrets, file_store):
    response = await world.client(secrets["acct_one"]).responses.create(
        model=MODEL, input="The first words, then more."
    )
    await UsageStore(world.keys._database).add([one for one in world.log.records if one.route == "/v1/responses"])
    request_id = "req_" + response.id.removeprefix("resp_")
    assert f'href="/console/responses/{response.id}"' in await holder.read(f"/console/requests/{request_id}")
    page = await holder.read(f"/console/responses/{response.id}")
    assert f'href="/console/requests/{request_id}"' in page
    text = text_of(await holder.read("/console/responses"))
    assert "The first words, then more." in text
    assert "key of acct_one" in text
    found = await holder.http.get(f"/console/responses?id={response.id}")
    assert found.headers["location"] == f"/console/responses/{response.id}"
