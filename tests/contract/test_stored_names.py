"""Values are stored as JSON under the names of their fields: a renamed field or tag would make old databases unreadable."""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec

from holdfast.core.agents import Agent, Secret
from holdfast.core.archives import Archive
from holdfast.core.blocks import Block
from holdfast.core.events import Event
from holdfast.core.files import AgentFile, Content, File, Folder
from holdfast.core.identities import Identity
from holdfast.core.index_check import IndexCheck
from holdfast.core.mcp_servers import McpSecrets, McpServer
from holdfast.core.mcp_sessions import McpSession, SessionSecrets
from holdfast.core.messages import Message, OpenCall
from holdfast.core.passages import Passage
from holdfast.core.providers import Provider
from holdfast.core.runs import Run
from holdfast.core.steps import Step
from holdfast.core.threads import Thread
from holdfast.core.tools import Tool
from holdfast.core.traces import ProviderTrace

STORED = (
    Agent,
    AgentFile,
    Archive,
    Block,
    Content,
    Event,
    File,
    Folder,
    Identity,
    IndexCheck,
    McpSecrets,
    McpServer,
    McpSession,
    Message,
    OpenCall,
    Passage,
    Provider,
    ProviderTrace,
    Run,
    Secret,
    SessionSecrets,
    Step,
    Thread,
    Tool,
)
RECORDED = Path(__file__).with_name("stored_names.json")


def collect_names(kind: type[msgspec.Struct], names: dict[str, Any]) -> None:
    """The tag and the fields of a Struct and of every Struct in it, under its name."""
    if kind.__name__ in names:
        return
    fields = msgspec.structs.fields(kind)
    tag = kind.__struct_config__.tag
    names[kind.__name__] = {"tag": tag, "fields": sorted(item.encode_name for item in fields)}
    for item in fields:
        for inner in structs_in(item.type):
            collect_names(inner, names)


def structs_in(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [found for inner in get_args(annotation) for found in structs_in(inner)]


def stored_shapes(names: dict[str, Any]) -> list[str]:
    """What is stored of each Struct. Its own name is not: a class may be renamed if its tag stays."""
    return sorted(json.dumps(shape, sort_keys=True) for shape in names.values())


def test_stored_values_keep_the_names_of_their_fields_and_tags() -> None:
    """A new field with a default may be recorded here. A name that disappears needs a migration."""
    names: dict[str, Any] = {}
    for kind in STORED:
        collect_names(kind, names)
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert stored_shapes(names) == stored_shapes(recorded)
