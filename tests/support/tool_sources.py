"""Tools that the tests give to their agents, as their users would write them."""

SHOUT = '''
def shout(text: str) -> str:
    """Say it loudly.

    Args:
        text: What to say.
    """
    return text.upper() + "!"
'''

WHISPER = '''
def whisper(text: str) -> str:
    """Say it softly.

    Args:
        text: What to say.
    """
    return text.lower() + "…"
'''

PICK = '''
def pick(answer: str) -> str:
    """Choose.

    Args:
        answer: The choice.
    """
    return answer
'''

EXPLODE = '''
def explode(reason: str) -> str:
    """Fail.

    Args:
        reason: Why.
    """
    print("about to explode")
    raise ValueError(reason)
'''

ADD = '''
def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b
'''

SECRET = '''
def reveal(name: str) -> str:
    """Read a variable.

    Args:
        name: Its name.
    """
    import os

    return os.environ.get(name, "not there")
'''

WAIT_AT_GATE = '''
def wait_at_gate(port: int, log: str) -> str:
    """Leave a line in a file, then wait until the gate is opened.

    Args:
        port: Where the gate listens.
        log: The file.
    """
    import socket

    with open(log, "a") as file:
        file.write("entered\\n")
    with socket.create_connection(("127.0.0.1", port)) as gate:
        gate.recv(1)
    return "came in"
'''

INTROSPECT = '''
def introspect(agent_state: "AgentState") -> list:
    """Tell what is known of the agent."""
    return [
        agent_state.name,
        agent_state.memory.get_block("human").value,
        agent_state.blocks[0].value,
        agent_state.tags,
        [tool.name for tool in agent_state.tools],
        agent_state.model,
        "only-in-the-environment" in str(agent_state),
    ]
'''
