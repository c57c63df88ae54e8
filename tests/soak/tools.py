"""The tools of a soak: one that works, and one for each way to misbehave. Each takes one text."""

from typing import Final

_ARGUMENT: Final = '''
    Args:
        text: Some text.
    """
'''

WORK: Final = f'''
def work(text: str) -> str:
    """Say it loudly.
{_ARGUMENT}
    return text.upper()
'''
# Leaves files in its folder and in the folder of temporary files.
LITTER: Final = f'''
def litter(text: str) -> str:
    """Leave files behind.
{_ARGUMENT}
    import os, tempfile
    for number in range(5):
        with open(f"left-{{number}}", "w") as file:
            file.write(text * 100)
        tempfile.mkstemp(text=True)
    os.makedirs("a/b/c/d")
    return "left"
'''
FAIL: Final = f'''
def fail(text: str) -> str:
    """Fail.
{_ARGUMENT}
    raise ValueError(text)
'''
CRASH: Final = f'''
def crash(text: str) -> str:
    """End the process.
{_ARGUMENT}
    import os
    os.abort()
'''
HANG: Final = f'''
def hang(text: str) -> str:
    """Never return.
{_ARGUMENT}
    import threading
    threading.Event().wait()
'''
# Starts a process that wants to outlive the call. Its command line can be found.
DAEMON: Final = f'''
def daemon(text: str) -> str:
    """Leave a process behind.
{_ARGUMENT}
    import subprocess
    subprocess.Popen(["sleep", text], start_new_session=True)
    return "started"
'''
HOLD: Final = f'''
def hold(text: str) -> str:
    """Ask first.
{_ARGUMENT}
    return text
'''

SOURCES: Final = {
    "work": WORK,
    "litter": LITTER,
    "fail": FAIL,
    "crash": CRASH,
    "hang": HANG,
    "daemon": DAEMON,
    "hold": HOLD,
}
NEEDS_APPROVAL: Final = "hold"
