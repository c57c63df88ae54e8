"""Code in the sandbox that calls tools of its agent: what it can do, and what it cannot, at both levels."""

import asyncio
import dataclasses
import json
import textwrap
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.support.rig import ACTOR, Rig
from tests.support.tool_sources import ADD, EXPLODE, SHOUT
from tests.support.values import Make
from tests.support.waiting import WAIT_SECONDS

from holdfast.adapters.sandbox.isolation import Isolation, isolation_problem
from holdfast.adapters.sandbox.server_functions import MAX_REQUEST_BYTES
from holdfast.adapters.sandbox.subprocess import SubprocessSandbox
from holdfast.adapters.store.sqlite import SqliteStore
from holdfast.adapters.toolbox.code_with_tools import NAME
from holdfast.adapters.toolbox.router import ToolRouter
from holdfast.adapters.toolbox.tool_channel import MAX_CALLS, MAX_CALLS_AT_ONCE, TOO_MANY_CALLS
from holdfast.core.json_depth import MAX_DEPTH
from holdfast.core.messages import Image, Outcome, Text, ToolCall, ToolReturn
from holdfast.core.runs import ClientTool, RunRequest, RunStatus
from holdfast.core.tool_rules import RequiresApproval
from holdfast.core.tools import Tool, ToolKind
from holdfast.core.turn import PlannedCall
from holdfast.engine.lease_check import is_lost
from holdfast.ports.sandbox import Sandbox
from holdfast.ports.services import Services
from holdfast.ports.store import Transaction
from holdfast.ports.toolbox import BuiltinSpec, ToolContext

pytestmark = pytest.mark.slow

# More than the sandbox's own calls at once, so that calls that wait for each other would show.
CALLS_AT_ONCE = 2

COUNTS = """
def counts(words: list) -> dict:
    return {"n": len(words), "first": words[0] if words else None}
"""
TEXT_OF_JSON = """
def text_of_json() -> str:
    return '{"a": 1}'
"""
DEEP = """
def deep(levels: int) -> list:
    made = []
    for _ in range(levels - 1):
        made = [made]
    return made
"""
LONG = """
def long(n: int) -> list:
    return ["x" * n]
"""
HANG = """
def hang() -> str:
    import time
    time.sleep(600)
"""
# Speaks on the socket of the program by itself.
RAW = """
import json, os, socket, struct
raw = socket.socket(fileno=os.dup(4))
def ask(**request):
    body = json.dumps(request).encode()
    raw.sendall(struct.pack("!I", len(body)) + body)
def hear():
    data = raw.recv(4)
    if not data:
        return None
    (size,) = struct.unpack("!I", data)
    body = b""
    while len(body) < size:
        body += raw.recv(size - len(body))
    return json.loads(body)
def nested(levels):
    body = b'{"id": 1, "tool": "look", "arguments": {"n": ' + b"[" * (levels - 2) + b"]" * (levels - 2) + b"}}"
    return struct.pack("!I", len(body)) + body
"""


class WatchedToolbox:
    """The real toolbox; tools of MCP servers, which run elsewhere, return what the test says."""

    def __init__(self, router: ToolRouter) -> None:
        self._router = router
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.begun = asyncio.Event()
        self.cancelled: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.remote_result: tuple[Any, ...] = (Text("from afar"),)
        self.gate: asyncio.Event | None = None
        self.fault: Exception | None = None

    def builtin_tools(self) -> Sequence[BuiltinSpec]:
        return self._router.builtin_tools()

    async def run(self, tool: Tool, planned: PlannedCall, context: ToolContext) -> ToolReturn:
        self.started.append((tool.name, planned.arguments))
        self.begun.set()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if tool.kind is not ToolKind.MCP:
                return await self._router.run(tool, planned, context)
            if self.gate is not None:
                await self.gate.wait()
            if self.fault is not None:
                raise self.fault
            return ToolReturn(
                planned.call.id, tool.name, Outcome.FINISHED, tuple(self.remote_result)
            )
        except asyncio.CancelledError:
            self.cancelled.append(tool.name)
            raise
        finally:
            self.at_once -= 1

    async def run_source(self, *given: Any, **named: Any) -> ToolReturn:
        return await self._router.run_source(*given, **named)


class Bench:
    """An agent with tools, and programs that it runs."""

    def __init__(self, rig: Rig, sandbox: Sandbox, make: Make, *, seconds: float) -> None:
        self._make = make
        self._rig = rig
        self._router = ToolRouter(sandbox=sandbox, timeout_seconds=seconds)
        self.toolbox = WatchedToolbox(self._router)
        self.services: Services = dataclasses.replace(rig.services, toolbox=self.toolbox)
        self._router.bind(self.services)
        self.tools: dict[str, Tool] = {}
        self.agent_id = ""
        self.run_id = ""

    async def claim(self, owner_id: str | None = None, **request: Any) -> None:
        """Begin a run of the agent, as this server executes it, or another one."""
        await self._rig.lease.register()
        thread = self._make.thread(self._make.agent(id=self.agent_id))
        run = self._make.run(
            thread,
            status=RunStatus.RUNNING,
            request=RunRequest(**request),
            owner_id=owner_id or self._server_id(),
        )
        self.run_id = run.id
        await self.services.store.write(lambda tx: tx.runs.add(run))

    def _server_id(self) -> str:
        claimant = self.services.lease.claimant
        assert claimant is not None
        return claimant.server_id

    async def attach(self, *tools: Tool, held: Sequence[str] = ()) -> None:
        rules = tuple(RequiresApproval(tool_name=name) for name in held)
        agent = await self._rig.make_agent(rules=rules)
        self.agent_id = agent.id

        def work(tx: Transaction) -> None:
            for tool in tools:
                tx.tools.add(tool)
            tx.agents.attach_tools(agent.id, [tool.id for tool in tools])

        await self.services.store.write(work)
        self.tools = {tool.name: tool for tool in tools}

    def custom(self, name: str, source: str, *parameters: str, **fields: Any) -> Tool:
        required = fields.pop("required", list(parameters))
        schema = {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {parameter: {} for parameter in parameters},
                "required": required,
            },
        }
        return self._make.tool(name=name, json_schema=schema, source_code=source, **fields)

    def remote(self, name: str, *parameters: str, **fields: Any) -> Tool:
        tool = self.custom(name, "", *parameters, **fields)
        return Tool(
            **{field: getattr(tool, field) for field in tool.__struct_fields__}
            | {"kind": ToolKind.MCP, "source_code": None}
        )

    def builtin(self, name: str) -> Tool:
        spec = next(spec for spec in self._router.builtin_tools() if spec.name == name)
        schema = {"name": name, "parameters": spec.parameters}
        return self._make.tool(
            name=name, kind=spec.kind, json_schema=schema, enable_parallel_execution=spec.parallel
        )

    async def call(self, code: str, **fields: Any) -> ToolReturn:
        context = ToolContext(
            agent_id=self.agent_id,
            organization_id=ACTOR.organization_id,
            thread_id=self.agent_id,
            **fields,
        )
        planned = PlannedCall(ToolCall("call-1", NAME, "{}"), {"code": textwrap.dedent(code)})
        async with asyncio.timeout(4 * WAIT_SECONDS):
            return await self._router.run(self.builtin(NAME), planned, context)

    async def value(self, code: str) -> Any:
        returned = await self.call(code)
        assert returned.ok, returned.text
        return json.loads(returned.text)["func_return"]

    async def error(self, code: str) -> str:
        """What the program has ended with."""
        returned = await self.call(code)
        assert returned.outcome is Outcome.FAILED, returned.text
        told = json.loads(returned.text)
        assert told["status"] == "error"
        return str(told["func_return"])


@pytest.fixture(params=["plain", "isolated"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    isolation = Isolation(network=False) if request.param == "isolated" else None
    if isolation is not None and (problem := isolation_problem(isolation)) is not None:
        pytest.skip(problem)
    made = SubprocessSandbox(isolation=isolation, max_concurrent=CALLS_AT_ONCE)
    yield made
    await made.close()


@pytest.fixture
async def plain_sandbox() -> AsyncIterator[Sandbox]:
    made = SubprocessSandbox(max_concurrent=CALLS_AT_ONCE)
    yield made
    await made.close()


@pytest.fixture
def bench(store: SqliteStore, sandbox: Sandbox, make: Make) -> Bench:
    return Bench(Rig(store), sandbox, make, seconds=2 * WAIT_SECONDS)


@pytest.fixture
def plain_bench(store: SqliteStore, plain_sandbox: Sandbox, make: Make) -> Bench:
    return Bench(Rig(store), plain_sandbox, make, seconds=2 * WAIT_SECONDS)


async def test_tools_of_every_kind_are_functions(bench: Bench) -> None:
    await bench.attach(
        bench.custom("add", ADD, "a", "b", required=["a"]),
        bench.builtin("run_code"),
        bench.remote("look-up", "city"),
    )

    value = await bench.value(
        """
        print("begin")
        inner = run_code(code="6 * 7", language="python")
        [add(1), add(2, 3), add(b=4, a=4), inner, look_up(city="Oslo"), look_up.__name__]
        """
    )

    inner = json.dumps({"results": ["42"], "logs": {"stdout": [], "stderr": []}})
    assert value == [3, 5, 8, inner, "from afar", "look_up"]
    assert bench.toolbox.started[-1] == ("look-up", {"city": "Oslo"})


async def test_names_that_python_uses_itself_end_with_an_underscore(plain_bench: Bench) -> None:
    bench = plain_bench
    names = ("print", "class", "__name__", "ToolFailed", "value_of_the_last_line", "len", "len_")
    await bench.attach(*(bench.remote(name) for name in names))

    value = await bench.value(
        """
        print("mine")
        tools = [print_, class_, __name___, ToolFailed_, value_of_the_last_line_, len__, len_]
        told = [tool() for tool in tools]
        [len(told), __name__, issubclass(ToolFailed, Exception)]
        """
    )

    assert value == [7, "tool", True]
    assert [name for name, _ in bench.toolbox.started] == [*names]


async def test_tools_whose_names_would_be_the_same_are_all_functions(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(*(bench.remote(name) for name in ("look-up", "look_up", "2look")))

    await bench.value("look_up()\nlook_up_()\n_2look()")

    assert [name for name, _ in bench.toolbox.started] == ["look_up", "look-up", "2look"]


async def test_the_result_has_the_form_of_v1(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("shout", SHOUT, "text"))

    returned = await bench.call("print('one')\nx = shout('hi')\nprint(x)")
    failed = await bench.call("import sys\nprint('two')\nprint('oh', file=sys.stderr)\n1 / 0")

    assert json.loads(returned.text) == {
        "status": "success",
        "func_return": None,
        "stdout": ["one", "HI!"],
        "stderr": [],
        "tool_calls": {"shout": 1},
    }
    told = json.loads(failed.text)
    assert told["func_return"] == "ZeroDivisionError: division by zero"
    assert (told["status"], told["stdout"], told["stderr"][0]) == ("error", ["two"], "oh")
    assert failed.outcome is Outcome.FAILED


async def test_values_of_custom_tools_stay_what_they_are(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(
        bench.custom("counts", COUNTS, "words"), bench.custom("text_of_json", TEXT_OF_JSON)
    )

    value = await bench.value("[counts(['ä', 'b']), counts(words=[]), text_of_json()]")

    assert value == [{"n": 2, "first": "ä"}, {"n": 0, "first": None}, '{"a": 1}']


async def test_a_result_that_is_too_long_is_cut_as_for_a_model(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("long", LONG, "n", return_char_limit=20))

    value = await bench.value("[long(3), long(100)]")

    assert value[0] == ["xxx"]
    assert value[1].startswith('["xxxxxxxxxxxxxxxxxx... [NOTE: function output was truncated')


async def test_pictures_of_a_tool_are_only_mentioned(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("draw"))
    bench.toolbox.remote_result = (Text("Here:"), Image("image/png", "aGk="))

    assert await bench.value("draw()") == "Here:\n[image]"


async def test_a_tool_that_fails_raises_in_the_program(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("explode", EXPLODE, "reason"))

    value = await bench.value(
        """
        try:
            explode("too hot")
        except ToolFailed as error:
            told = str(error)
        told
        """
    )

    assert value == "Error executing function explode: ValueError: too hot"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("add()", "missing 1 required positional argument"),
        ("add(1, 2, 3)", "add() takes 2 arguments, but 3 were given"),
        ("add(1, a=2)", "several values for the argument 'a'"),
        ("add(float('nan'))", "not JSON compliant"),
        ("add(object())", "not JSON serializable"),
    ],
)
async def test_wrong_arguments_are_explained(plain_bench: Bench, line: str, says: str) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("add", ADD, "a", "b", required=["a"]))

    assert says in await bench.error(line)


async def test_a_tool_that_requires_approval_is_refused(bench: Bench) -> None:
    await bench.attach(bench.custom("add", ADD, "a"), held=["add"])

    assert "add requires approval" in await bench.error("add(1)")
    assert bench.toolbox.started == []


async def test_only_the_agents_own_tools_can_be_called(bench: Bench, make: Make) -> None:
    """The socket is asked directly: what is no function can be named all the same."""
    other = make.tool(name="other", source_code="def other(): ...")
    await bench.services.store.write(lambda tx: tx.tools.add(other))
    await bench.attach(bench.custom("add", ADD, "a"), bench.builtin(NAME))

    value = await bench.value(
        RAW
        + textwrap.dedent(
            f"""
            told = []
            for name in ("other", "{NAME}", "run_code", "holdfast", ""):
                ask(id=1, tool=name, arguments={{"code": "1"}})
                told.append(hear()["error"])
            ["other" in globals(), "{NAME}" in globals(), *told]
            """
        )
    )

    assert value == [
        *(False, False, "Tool not found: other", f"{NAME} cannot be called by code."),
        *("Tool not found: run_code", "Tool not found: holdfast", "Tool not found: "),
    ]
    assert bench.toolbox.started == []


async def test_send_message_would_reach_nobody(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.builtin("send_message"))

    assert "would reach nobody" in await bench.error("send_message('Hello')")


async def test_a_program_that_calls_too_often_gets_no_more_answers(bench: Bench) -> None:
    await bench.attach(bench.remote("look"))

    value = await bench.value(
        """
        told = []
        done = 0
        for number in range(5000):
            try:
                look()
                done += 1
            except ToolFailed as error:
                if str(error) not in told:
                    told.append(str(error))
        [done, told]
        """
    )

    ended = "The server takes no more calls of tools from this program."
    assert value == [MAX_CALLS, [TOO_MANY_CALLS, ended]]
    assert len(bench.toolbox.started) == MAX_CALLS


@pytest.mark.parametrize(
    "garbage",
    [
        "b'GET / HTTP/1.1\\r\\n\\r\\n'",
        "struct.pack('!I', 2**32 - 1)",
        f"struct.pack('!I', {MAX_REQUEST_BYTES + 1})",
        "struct.pack('!I', 100000) + b'[' * 100000",
        f"nested({MAX_DEPTH + 1})",
        "struct.pack('!I', 4) + b'null'",
        "struct.pack('!I', 2) + b'{}'",
        "struct.pack('!I', 8) + b'\\xff' * 8",
        'struct.pack(\'!I\', 44) + b\'{"id":1,"tool":["look"],"arguments":"x"}    \'',
    ],
)
async def test_garbage_ends_the_channel_and_nothing_else(bench: Bench, garbage: str) -> None:
    await bench.attach(bench.remote("look"))

    value = await bench.value(
        RAW
        + textwrap.dedent(
            f"""
            first = look()
            raw.sendall({garbage})
            try:
                answer = hear()
            except ConnectionError:
                answer = None
            try:
                second = look()
            except ToolFailed as error:
                second = str(error)
            [first, answer, second]
            """
        )
    )

    assert value[:2] == ["from afar", None]
    assert "takes no more calls" in value[2]


@pytest.mark.parametrize(("levels", "is_taken"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
async def test_arguments_that_are_nested_too_deeply_are_refused_in_the_program(
    plain_bench: Bench, levels: int, is_taken: bool
) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("look", "n"))

    told, second = await bench.value(
        f"""
        deep = []
        for _ in range({levels} - 3):
            deep = [deep]
        try:
            told = look(deep)
        except ToolFailed as error:
            told = str(error)
        [told, look(1)]
        """
    )

    refusal = (
        f"The arguments of look cannot be sent: JSON is nested deeper than {MAX_DEPTH} levels."
    )
    assert told == ("from afar" if is_taken else refusal)
    assert second == "from afar"


async def test_a_result_that_is_nested_too_deeply_is_given_as_text(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("deep", DEEP, "levels", return_char_limit=1_000))

    value = await bench.value(f"[deep({MAX_DEPTH}), deep({MAX_DEPTH + 1})]")

    shallow, text = value
    assert isinstance(shallow, list)
    assert text == "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)


async def test_a_fault_of_the_server_in_a_call_is_an_error_in_the_program_and_is_logged(
    plain_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The run, which has called other tools by then, must not fail with it."""
    bench = plain_bench
    bench.toolbox.fault = KeyError("secret")
    await bench.attach(bench.remote("look"))

    value = await bench.value(
        """
        try:
            look()
        except ToolFailed as error:
            told = str(error)
        told
        """
    )

    assert value == (
        "Error executing function look: The server has failed. Whether the call had an effect is unknown."
    )
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage() == "tool.failed"


async def test_descriptors_that_are_sent_along_are_dropped(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("look"))

    value = await bench.value(
        RAW
        + textwrap.dedent(
            """
            body = json.dumps({"id": 7, "tool": "look", "arguments": {}}).encode()
            here, there = os.pipe()
            socket.send_fds(raw, [struct.pack("!I", len(body)) + body], [there])
            os.close(there)
            answer = hear()["value"]
            [answer, os.read(here, 1) == b""]
            """
        )
    )

    assert value == ["from afar", True]


async def test_a_forked_process_has_no_part_in_it(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("look"))

    value = await bench.value(
        """
        import os
        here, there = os.pipe()
        if os.fork() == 0:
            try:
                look()
            except ToolFailed as error:
                os.write(there, str(error).encode())
            os._exit(0)
        os.wait()
        [os.read(here, 1000).decode(), look()]
        """
    )

    assert value == [
        "Tools can be called only by the process in which the program began.",
        "from afar",
    ]


async def test_a_program_that_is_executed_does_not_inherit_the_socket(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("look"))

    value = await bench.value(
        """
        import subprocess, sys
        program = "import os; os.fstat(4)"
        done = subprocess.run([sys.executable, "-c", program], close_fds=False, stderr=subprocess.PIPE, text=True)
        done.stderr.splitlines()[-1]
        """
    )

    assert "Bad file descriptor" in value


async def test_nothing_is_answered_once_the_program_has_ended(bench: Bench) -> None:
    """A process that stays behind holds the socket open; it is killed, and what it had asked for ends."""
    bench.toolbox.gate = asyncio.Event()
    await bench.attach(bench.remote("look"))

    returned = await bench.call(
        RAW
        + textwrap.dedent(
            """
            ask(id=1, tool="look", arguments={})
            if os.fork() == 0:
                while True:
                    hear()
            "ended"
            """
        )
    )

    assert json.loads(returned.text)["func_return"] == "ended"
    assert bench.toolbox.at_once == 0
    assert bench.toolbox.cancelled == [name for name, _ in bench.toolbox.started]


async def test_threads_call_tools_side_by_side_within_limits(bench: Bench) -> None:
    bench.toolbox.gate = asyncio.Event()
    await bench.attach(bench.remote("look", "n", enable_parallel_execution=True))

    async def open_gate() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while bench.toolbox.at_once < MAX_CALLS_AT_ONCE:
                await bench.toolbox.begun.wait()
                await asyncio.sleep(0)
        assert bench.toolbox.gate is not None
        bench.toolbox.gate.set()

    opening = asyncio.create_task(open_gate())
    value = await bench.value(
        """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(20) as pool:
            found = list(pool.map(look, range(40)))
        len(found)
        """
    )
    await opening

    assert value == 40
    assert bench.toolbox.most_at_once == MAX_CALLS_AT_ONCE
    assert sorted(arguments["n"] for _, arguments in bench.toolbox.started) == list(range(40))


async def test_tools_that_do_not_run_in_parallel_wait_for_each_other(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("look", "n"))

    await bench.value(
        """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(look, range(16)))
        """
    )

    assert bench.toolbox.most_at_once == 1


async def test_programs_that_fill_the_sandbox_still_find_room_for_their_tools(
    plain_bench: Bench,
) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("add", ADD, "a", "b"))

    values = await asyncio.gather(*(bench.value("add(20, 22)") for _ in range(4 * CALLS_AT_ONCE)))

    assert values == [42] * 4 * CALLS_AT_ONCE


async def test_cancelling_the_program_ends_the_tool_that_it_has_called(bench: Bench) -> None:
    await bench.attach(bench.custom("hang", HANG))

    running = asyncio.create_task(bench.call("hang()"))
    async with asyncio.timeout(WAIT_SECONDS):
        await bench.toolbox.begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert bench.toolbox.cancelled == ["hang"]


async def test_a_program_that_takes_too_long_ends_with_the_tool_that_it_has_called(
    store: SqliteStore, plain_sandbox: Sandbox, make: Make
) -> None:
    bench = Bench(Rig(store), plain_sandbox, make, seconds=1.0)
    bench.toolbox.gate = asyncio.Event()
    await bench.attach(bench.remote("look"))

    assert "did not finish within 1 seconds" in await bench.error("look()")
    assert bench.toolbox.cancelled == ["look"]


async def test_a_program_that_cannot_be_parsed_is_not_begun(plain_bench: Bench) -> None:
    await plain_bench.attach()

    returned = await plain_bench.call("def")

    assert returned.outcome is Outcome.FAILED
    assert "line 1" in returned.text


async def test_the_engine_hears_which_tools_a_program_has_called(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("add", ADD, "a", "b"), bench.remote("look"))
    used: list[str] = []

    assert (await bench.call("add(1, 2)\nadd(3, 4)", on_tool_used=used.append)).ok

    assert used == ["add", "add"]


async def test_a_server_that_has_lost_the_run_starts_no_tool_for_it(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.remote("look"))
    await bench.claim(owner_id="server-of-somebody-else")

    with pytest.raises(ExceptionGroup) as raised:
        await bench.call("look()", run_id=bench.run_id)

    assert is_lost(raised.value)
    assert bench.toolbox.started == []


async def test_a_tool_of_the_client_cannot_be_called(plain_bench: Bench) -> None:
    bench = plain_bench
    await bench.attach(bench.custom("add", ADD, "a", "b"))
    await bench.claim(client_tools=(ClientTool("add"),))

    returned = await bench.call("add(1, 2)", run_id=bench.run_id)

    assert "requires approval" in returned.text
    assert bench.toolbox.started == []
