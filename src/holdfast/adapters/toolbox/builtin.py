"""All built-in tools (wire-v1 §7.3), by name."""

from collections.abc import Mapping

from holdfast.adapters.toolbox.agent_tools import AGENT_TOOLS
from holdfast.adapters.toolbox.archival_tools import ARCHIVAL_TOOLS
from holdfast.adapters.toolbox.code_tools import CODE_TOOLS
from holdfast.adapters.toolbox.code_with_tools import CODE_WITH_TOOLS
from holdfast.adapters.toolbox.file_tools import FILE_TOOLS
from holdfast.adapters.toolbox.memory_tools import MEMORY_TOOLS
from holdfast.adapters.toolbox.search_tools import SEARCH_TOOLS
from holdfast.adapters.toolbox.specs import Builtin, constant_reply, parameters, string_schema
from holdfast.adapters.toolbox.web_tools import WEB_TOOLS
from holdfast.core.tools import ToolKind
from holdfast.ports.toolbox import BuiltinSpec

_SEND_MESSAGE = Builtin(
    BuiltinSpec(
        name="send_message",
        description="Send a message to the user.",
        kind=ToolKind.CORE,
        parameters=parameters(["message"], message=string_schema("What to say.")),
    ),
    # Its argument is the message to the user; clients read it from the call.
    constant_reply("Sent message successfully."),
)

BUILTIN: Mapping[str, Builtin] = {
    item.spec.name: item
    for item in (
        *MEMORY_TOOLS,
        *SEARCH_TOOLS,
        *ARCHIVAL_TOOLS,
        _SEND_MESSAGE,
        *AGENT_TOOLS,
        *CODE_TOOLS,
        CODE_WITH_TOOLS,
        *WEB_TOOLS,
        *FILE_TOOLS,
    )
}
