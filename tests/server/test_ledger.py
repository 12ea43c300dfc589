"""The ledger keeps a row per request through restarts, full disks and torn writes, and adds up."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo.core.errors import RequestError
from octavo.server.answers import UsageSums
from octavo.server.telemetry import ledger as ledgers
from octavo.server.telemetry import ledger_file
from octavo.server.telemetry.ledger import Ledger
from octavo.server.telemetry.ledger_file import NAME, Row
from octavo.server.telemetry.prices import Prices
from octavo.server.telemetry.usage import Question, moment, usage
from tests.engine.tiny import prompt
from tests.server.conftest import Served
from tests.server.live import MODEL, serving, talker

DAY = 86_400.0
NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC
ALL = Question("day", 0.0, 1e11)
Eventually = Callable[[Callable[[], bool]], None]


def row(ended_at: float = NOON, **fields: Any) -> Row:
    usual = Row(
        ended_at=ended_at,
        request_id="req_1",
        key_id=None,
        model="m",
        finish="stop",
        prompt_tokens=100,
        read_tokens=64,
        written_5m_tokens=0,
        written_1h_tokens=0,
        written_implicit_tokens=32,
        unkept_tokens=4,
        output_tokens=10,
        first_token_seconds=0.5,
        duration_seconds=2.0,
        block_seconds=14.0,
        cost_dollars=0.25,
    )
    return usual._replace(**fields)


def kept(folder: Path) -> list[tuple[Any, ...]]:
    """All rows, oldest first, read by another connection."""
    with sqlite3.connect(folder / NAME) as connection:
        return connection.execute(
            f"SELECT {', '.join(Row._fields)} FROM requests ORDER BY id"
        ).fetchall()


def sums(folder: Path, by: str = "day", **bounds: float) -> list[dict[str, Any]]:
    question = Question(by, bounds.get("since", 0.0), bounds.get("until", 1e11))
    data: list[dict[str, Any]] = usage(folder / NAME, question)["data"]
    return data


def written(folder: Path, *rows: Row, **options: Any) -> Ledger:
    """A ledger that was given rows and closed. Its clock stands still at the first row's time."""
    ledger = Ledger(folder, now=lambda: NOON, **options)
    for each in rows:
        ledger.add(each)
    ledger.close()
    return ledger


# -- keeping ------------------------------------------------------------------------------------


def test_rows_survive_restarts(tmp_path: Path) -> None:
    written(tmp_path / "new" / "folder", row(), row(model="n"))
    folder = tmp_path / "new" / "folder"
    written(folder, row(key_id="k"))
    assert kept(folder) == [row(), row(model="n"), row(key_id="k")]


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    written(folder, row())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


def test_rows_are_there_within_a_second_without_closing(
    tmp_path: Path, eventually: Eventually
) -> None:
    ledger = Ledger(tmp_path)
    try:
        ledger.add(row(time.time()))
        eventually(lambda: (tmp_path / NAME).exists() and len(sums(tmp_path)) == 1)
        ledger.add(row(time.time()))
        eventually(lambda: sums(tmp_path)[-1]["requests"] == 2 or len(sums(tmp_path)) == 2)
    finally:
        ledger.close()


def test_a_torn_last_write_costs_no_row_before_it(tmp_path: Path) -> None:
    """As after a crash: the write-ahead log ends in the middle of a page."""
    connection = ledger_file.open_to_write(tmp_path / NAME)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    ledger_file.append(connection, [row(request_id="whole")] * 3)
    whole_bytes = (tmp_path / f"{NAME}-wal").stat().st_size
    ledger_file.append(connection, [row(request_id="torn")] * 300)
    torn = tmp_path / "torn"
    torn.mkdir()
    shutil.copy(tmp_path / NAME, torn)
    log = (tmp_path / f"{NAME}-wal").read_bytes()
    assert len(log) > whole_bytes + 5000
    (torn / f"{NAME}-wal").write_bytes(log[: whole_bytes + 5000])
    connection.close()
    ledger = written(torn, row(request_id="after"))
    assert [each[1] for each in kept(torn)] == ["whole"] * 3 + ["after"]
    assert ledger.lost_rows == 0


def test_a_killed_writer_leaves_a_sound_file(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from octavo.server.telemetry import ledger_file\n"
        "from tests.server.test_ledger import row\n"
        "connection = ledger_file.open_to_write(Path(sys.argv[1]))\n"
        "while True:\n"
        "    ledger_file.append(connection, [row()] * 50)\n"
        "    print('.', flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / NAME)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.readline() == b".\n"
        process.kill()
    found = kept(tmp_path)
    assert len(found) >= 150
    assert len(found) % 50 == 0
    with sqlite3.connect(tmp_path / NAME) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_two_servers_on_one_file(tmp_path: Path) -> None:
    first, second = (Ledger(tmp_path, now=lambda: NOON) for _ in range(2))
    for i in range(400):
        (first if i % 2 else second).add(row(request_id=f"req_{i}"))
        if i % 50 == 0:
            time.sleep(0.05)
    first.close()
    second.close()
    assert sorted(each[1] for each in kept(tmp_path)) == sorted(f"req_{i}" for i in range(400))
    assert (first.lost_rows, second.lost_rows) == (0, 0)
    with sqlite3.connect(tmp_path / NAME) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_full_disk_is_said_once_and_rows_wait_until_there_is_room(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    eventually: Eventually,
) -> None:
    full, attempts = [True], [0]
    open_to_write = ledger_file.open_to_write

    def open_small(path: Path) -> sqlite3.Connection:
        attempts[0] += 1
        connection = open_to_write(path)
        if full[0]:  # of these pages all are taken: SQLite says what it says of a full disk
            connection.execute("PRAGMA max_page_count=1")
        return connection

    monkeypatch.setattr(ledger_file, "open_to_write", open_small)
    monkeypatch.setattr(ledgers, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ledgers, "WAITING_ROWS", 5)
    ledger = Ledger(tmp_path, now=lambda: NOON)
    started = time.perf_counter()
    for i in range(8):
        ledger.add(row(request_id=f"req_{i}" * 1000))
    assert time.perf_counter() - started < 0.5  # nobody waited for the disk
    eventually(lambda: attempts[0] > 3)
    assert ledger.lost_rows == 3
    full[0] = False
    eventually(lambda: len(kept(tmp_path)) == 5)
    ledger.close()
    said = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert said == [
        "the ledger cannot be written (database or disk is full); serving goes on, rows wait",
        "the ledger is written again",
    ]


def test_rows_that_cannot_be_kept_at_the_end_are_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ledger = written(tmp_path / "file", row(), row())
    assert ledger.lost_rows == 2
    ledger.add(row())
    assert ledger.lost_rows == 3


@pytest.mark.parametrize("content", [b"not a database" * 100, b"\x00" * 4096])
def test_a_foreign_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert written(tmp_path, row()).lost_rows == 1
    assert (tmp_path / NAME).read_bytes() == content


def test_another_releases_file_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute("PRAGMA user_version=7")
    connection.close()
    assert written(tmp_path, row()).lost_rows == 1
    with sqlite3.connect(tmp_path / NAME) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_old_rows_and_too_many_rows_go(tmp_path: Path) -> None:
    written(tmp_path, *(row(NOON - n * DAY, request_id=f"old_{n}") for n in (11, 10.5, 9)))
    written(tmp_path, *(row(request_id=f"new_{n}") for n in range(4)), days=10)
    names = [each[1] for each in kept(tmp_path)]
    assert names == ["old_9", "new_0", "new_1", "new_2", "new_3"]
    written(tmp_path, rows=3)
    assert [each[1] for each in kept(tmp_path)] == ["new_1", "new_2", "new_3"]


# -- adding up ----------------------------------------------------------------------------------


def test_sums_by_day_key_and_model(tmp_path: Path) -> None:
    just_before, midnight = NOON + DAY / 2 - 0.001, NOON + DAY / 2
    written(
        tmp_path,
        row(just_before, key_id="a"),
        row(midnight, key_id="a", cost_dollars=None, first_token_seconds=None),
        row(midnight, model="n", key_id="b", first_token_seconds=1.5),
    )
    days = sums(tmp_path)
    assert [(each["day"], each["requests"]) for each in days] == [
        ("2026-01-01", 1),
        ("2026-01-02", 2),
    ]
    assert days[1] | {"day": None} == {
        "day": None,
        "requests": 2,
        "prompt_tokens": 200,
        "read_tokens": 128,
        "written_5m_tokens": 0,
        "written_1h_tokens": 0,
        "written_implicit_tokens": 64,
        "unkept_tokens": 8,
        "output_tokens": 20,
        "duration_seconds": 4.0,
        "block_seconds": 28.0,
        "mean_first_token_seconds": 1.5,
        "cost_dollars": 0.25,
        "unpriced_requests": 1,
    }
    assert [(each["key"], each["requests"]) for each in sums(tmp_path, "key")] == [
        ("a", 2),
        ("b", 1),
    ]
    assert [(each["model"], each["requests"]) for each in sums(tmp_path, "model")] == [
        ("m", 2),
        ("n", 1),
    ]
    assert [each["requests"] for each in sums(tmp_path, since=midnight)] == [2]
    assert [each["requests"] for each in sums(tmp_path, until=midnight)] == [1]


def test_without_prices_there_is_no_cost(tmp_path: Path) -> None:
    written(tmp_path, row(cost_dollars=None))
    (day,) = sums(tmp_path)
    assert (day["cost_dollars"], day["unpriced_requests"]) == (None, 1)


def test_sums_beyond_64_bits_do_not_fail(tmp_path: Path) -> None:
    written(tmp_path, *[row(prompt_tokens=2**62)] * 4)
    assert sums(tmp_path)[0]["prompt_tokens"] == 2**64


def test_an_answer_is_bounded(tmp_path: Path) -> None:
    written(tmp_path, *(row(key_id=f"k{i:05}") for i in range(1100)))
    answer = usage(tmp_path / NAME, Question("key", 0.0, 1e11))
    assert (len(answer["data"]), answer["has_more"]) == (1000, True)
    assert usage(tmp_path / "none", ALL)["data"] == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01", NOON - DAY / 2),
        ("2026-01-01T12:00:00", NOON),
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01T13:00:00+01:00", NOON),
        ("1950-01-01", 0.0),
    ],
)
def test_moments(text: str, seconds: float) -> None:
    assert moment(text, "since") == seconds


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"by": "prompt"}, "by"),
        ({"by": ""}, "by"),
        ({"since": "yesterday"}, "since"),
        ({"since": "9" * 5000}, "since"),
        ({"until": "2026-13-01"}, "until"),
        ({"since": "2026-02-01", "until": "2026-01-01"}, "until"),
        ({"limit": "5"}, "limit"),
    ],
)
def test_bad_questions_are_refused_by_name(query: dict[str, str], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        Question.of(query)
    assert caught.value.param == param


def test_prices_follow_the_parts_of_the_prompt() -> None:
    from tests.server.test_generation import outcome

    prices = Prices.of(
        price_input=1.0, price_output=10.0, price_cache_write=1.25, price_cache_read=None
    )
    assert prices is not None
    found = outcome(
        read_tokens=1000,
        written_5m_tokens=400,
        written_1h_tokens=600,
        written_implicit_tokens=160,
        unkept_tokens=40,
        output_tokens=50,
    )
    expected = (1000 * 1.0 + 1000 * 1.25 + 200 * 1.0 + 50 * 10.0) / 1e6
    assert prices.cost_dollars(found) == pytest.approx(expected)


# -- over HTTP ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    model, folder = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("data")
    talker(model)
    prices = Prices(input=1.0, output=2.0, cache_write=1.0, cache_read=0.5)
    with (
        serving(model, ledger=Ledger(folder), prices=prices, max_model_len=512) as (_, url),
        httpx.Client(base_url=url, timeout=20) as http,
    ):
        yield http, folder


def test_a_request_becomes_a_row_that_adds_up(
    house: tuple[httpx.Client, Path], eventually: Eventually
) -> None:
    http, folder = house
    asked = {"model": MODEL, "prompt": prompt(40), "max_tokens": 5, "ignore_eos": True}
    answers = [http.post("/v1/completions", json=asked) for _ in range(2)]
    eventually(lambda: (folder / NAME).exists() and sum(n["requests"] for n in sums(folder)) == 2)
    first, second = (Row(*each) for each in kept(folder))
    assert [first.request_id, second.request_id] == [
        each.headers["x-request-id"] for each in answers
    ]
    for each in (first, second):
        parts = each.read_tokens + each.written_implicit_tokens + each.unkept_tokens
        assert (each.prompt_tokens, parts, each.output_tokens) == (40, 40, 5)
        assert (each.model, each.finish, each.key_id) == (MODEL, "length", None)
        assert each.first_token_seconds is not None
        assert 0 < each.first_token_seconds <= each.duration_seconds
        # 40 tokens, then 44 at the end: three blocks all along.
        assert 0 < each.block_seconds <= 3 * each.duration_seconds
        computed = 40 - each.read_tokens
        cost = (computed + each.read_tokens * 0.5 + 5 * 2.0) / 1e6
        assert each.cost_dollars == pytest.approx(cost)
    assert (first.read_tokens, second.read_tokens) == (0, 32)
    answer = http.get("/v1/usage", params={"by": "model"})
    UsageSums.model_validate(answer.json())
    assert answer.json()["data"][0]["model"] == MODEL
    assert answer.json()["data"][0]["read_tokens"] == 32


def test_a_bad_question_is_a_400(house: tuple[httpx.Client, Path]) -> None:
    answer = house[0].get("/v1/usage", params={"by": "CANARY"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "by")


def test_a_request_that_is_left_has_its_row(
    house: tuple[httpx.Client, Path], eventually: Eventually
) -> None:
    http, folder = house
    asked = {"model": MODEL, "prompt": [5, 6], "max_tokens": 500, "ignore_eos": True}
    with http.stream("POST", "/v1/completions", json=asked | {"stream": True}) as answer:
        next(answer.iter_lines())
    eventually(lambda: Row(*kept(folder)[-1]).finish == "abort")
    last = Row(*kept(folder)[-1])
    assert last.request_id == answer.headers["x-request-id"]
    assert last.output_tokens < 500


def test_without_a_ledger_there_is_no_usage(served: Served) -> None:
    answer = served.http.get("/v1/usage")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "ledger_off")


def test_the_key_of_a_request_is_in_its_row(tmp_path: Path) -> None:
    from octavo.server.app import create_app
    from octavo.server.telemetry.record import KEY_ID
    from octavo.server.telemetry.telemetry import Telemetry
    from tests.server.fake_engine import FakeEngine

    class Keys:
        """As whoever checks keys does it, inside of everything that records."""

        def __init__(self, app: Any) -> None:
            self._app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            scope[KEY_ID] = "team-a"
            await self._app(scope, receive, send)

    engine, ledger = FakeEngine(), Ledger(tmp_path)
    app = create_app(engine, telemetry=Telemetry(engine, ledger=ledger))
    app.user_middleware.append(type(app.user_middleware[0])(Keys))  # innermost

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            body = {"model": "fake-model", "prompt": "x"}
            assert (await http.post("/v1/completions", json=body)).status_code == 200

    asyncio.run(ask())
    ledger.close()
    assert [each[2] for each in kept(tmp_path)] == ["team-a"]


def test_no_row_holds_content(house: tuple[httpx.Client, Path], eventually: Eventually) -> None:
    http, folder = house
    before = len(kept(folder))
    secret = "the CANARY sings"
    headers = {"x-request-id": secret, "authorization": f"Bearer {secret}"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": secret}], "user": secret}
    answer = http.post("/v1/chat/completions", json=body | {"max_tokens": 2}, headers=headers)
    assert answer.status_code == 200
    eventually(lambda: len(kept(folder)) > before)
    for name in os.listdir(folder):
        assert b"CANARY" not in (folder / name).read_bytes()
