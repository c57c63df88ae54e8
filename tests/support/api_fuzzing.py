"""Schemathesis against a real server: values that a machine made up, for every operation of the description.

All of its checks are made but those of ``LEFT_OUT``.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx
from tests.support.lax_requests import loosen_requests
from tests.support.server_process import ServerProcess
from tests.support.tool_sources import SHOUT

PASSWORD: Final = "open-sesame"
HEADERS: Final = {"authorization": f"Bearer {PASSWORD}"}

_SCHEMATHESIS: Final = Path(sys.executable).with_name("schemathesis")

# The first call of a tool makes an environment, which takes seconds on a busy machine.
_REQUEST_SECONDS: Final = "60"

LEFT_OUT: Final = {
    "positive_data_acceptance": "What a request may say also depends on its other fields, on what is stored and on "
    "what a text means: a tool's source is Python, a handle names a known model, messages or input is given. No "
    "schema can say so, and such a request is refused with the reason.",
    "object_level_authorization": "There is one password and one organization: whoever has it may see everything.",
}
# A query with more values than allowed may be a header that is too large (431). 501 is how a later release is announced;
# every other 5xx is a fault. A conversation that is there has no stream of a run that is not, and an identity is not
# attached to an agent that is not: such a 404 is no fault.
# These ask a server that nobody runs (502, and 408 if that takes too long).
_ASKS_MCP_SERVER: Final = """
[[operations]]
include-path = "{path}"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501, 502]
"""
_MCP_PATHS: Final = (
    "/v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run",
    "/v1/tools/mcp/servers/test",
    "/v1/tools/mcp/servers/{mcp_server_name}/tools",
    "/v1/tools/mcp/servers/{mcp_server_name}/{mcp_tool_name}",
    "/v1/tools/mcp/servers/{mcp_server_name}/tools/{mcp_tool_name}/execute",
)
_SETTINGS: Final = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "415", "422", "428", "429", "431", "5xx"]

[[operations]]
include-path = "/v1/conversations/{conversation_id}/stream"
checks.ensure_resource_availability.enabled = false

[[operations]]
include-path = "/v1/identities/{identity_id}"
checks.ensure_resource_availability.enabled = false
%s
[parameters]
"""


def start_fuzzed_server(home: Path) -> ServerProcess:
    """A server with a password and without keys: agents get the built-in guide. What the fuzzer invents as the
    requirements of a tool is looked up nowhere, and no MCP server that it invents is waited for."""
    return ServerProcess.start(
        home,
        HOLDFAST_PASSWORD=PASSWORD,
        PIP_NO_INDEX="1",
        HOLDFAST_MCP_CONNECT_SECONDS="2",
        HOLDFAST_MCP_LIST_SECONDS="2",
    )


def fuzz(
    server: ServerProcess,
    folder: Path,
    *options: str,
    limit_seconds: float,
    path_values: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Schemathesis with these options. ``path_values`` are used for the parameters of paths that have these names."""
    document = httpx.get(f"{server.address}/openapi.json", headers=HEADERS).json()
    (folder / "openapi.json").write_text(json.dumps(loosen_requests(document)), encoding="utf-8")
    exceptions = "".join(_ASKS_MCP_SERVER.replace("{path}", path) for path in _MCP_PATHS)
    values = "".join(f'"path.{name}" = "{value}"\n' for name, value in (path_values or {}).items())
    (folder / "settings.toml").write_text(_SETTINGS % exceptions + values, encoding="utf-8")
    return subprocess.run(
        [
            _SCHEMATHESIS,
            *("--config-file", folder / "settings.toml"),
            *("run", folder / "openapi.json", "--url", server.address),
            # The others are on unless the settings say otherwise; named here, they would be on in spite of the settings.
            *("--exclude-checks", ",".join(LEFT_OUT)),
            *("--header", f"Authorization: Bearer {PASSWORD}"),
            *("--request-timeout", _REQUEST_SECONDS),
            *("--max-response-time", _REQUEST_SECONDS),
            *("--generation-database", "none", "--no-color", "--warnings", "off"),
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=limit_seconds,
        check=False,
    )


def create_targets(server: ServerProcess) -> dict[str, str]:
    """One thing of each kind, by the parameter that names it in paths."""
    with httpx.Client(base_url=f"{server.address}/v1", timeout=60, headers=HEADERS) as http:
        tool = http.post("/tools/", json={"source_code": SHOUT}).json()["id"]
        block = http.post("/blocks/", json={"label": "notes", "value": "x"}).json()["id"]
        agent = http.post("/agents/", json={"tool_ids": [tool], "block_ids": [block]}).json()["id"]
        conversation = http.post("/conversations/", params={"agent_id": agent}, json={}).json()
        archive = http.post("/archives/", json={"name": "notes"}).json()["id"]
        passage = http.post(f"/archives/{archive}/passages", json={"text": "x"}).json()["id"]
        folder = http.post("/folders/", json={"name": "notes"}).json()["id"]
        files = {"file": ("notes.txt", b"x")}
        file = http.post(f"/folders/{folder}/upload", files=files).json()["id"]
        person = {"identifier_key": "maria", "name": "Maria", "identity_type": "user"}
        identity = http.post("/identities/", json=person).json()["id"]
        mcp = {"server_name": "weather", "config": {"server_url": "https://mcp.invalid/mcp"}}
        mcp_server = http.post("/mcp-servers/", json=mcp).json()["id"]
        said = http.post(f"/agents/{agent}/messages", json={"input": "Hello?"}).json()
    message = said["messages"][0]
    return {
        "agent_id": agent,
        "conversation_id": conversation["id"],
        "tool_id": tool,
        "block_id": block,
        "block_label": "notes",
        "archive_id": archive,
        "folder_id": folder,
        "source_id": folder,
        "file_id": file,
        "passage_id": passage,
        "memory_id": passage,
        "tool_name": "shout",
        "identity_id": identity,
        "mcp_server_id": mcp_server,
        "mcp_server_name": "weather",
        "mcp_tool_name": "forecast",
        "message_id": message["id"],
        "run_id": message["run_id"],
        "step_id": message["step_id"],
    }
