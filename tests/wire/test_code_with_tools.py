"""Code that calls the agent's tools (wire-v1 §7.3), through the client."""

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from letta_client import Letta
from tests.support.client_objects import as_dicts
from tests.support.server_process import ServerProcess
from tests.support.tool_gate import open_gate
from tests.support.tool_sources import ADD, WAIT_AT_GATE

from holdfast.testing import Answer, ScriptedProvider, ToolCall

if TYPE_CHECKING:
    from tests.support.wire_server import MakeAgent, MakeTool

pytestmark = pytest.mark.slow

NAME = "run_code_with_tools"
