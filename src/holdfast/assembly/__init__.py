"""Builds the server from its settings and runs it: the only package that chooses adapters.

``server`` runs a process, ``lifespan`` starts and stops what is in it, ``services`` builds the ports together.
Each of the other modules creates the adapters of one concern. Other packages use only what is listed here.
"""

from holdfast.assembly.doctor import run_doctor_checks
from holdfast.assembly.lifespan import RunningServer, running_server
from holdfast.assembly.server import load_libraries, open_socket, prepare_process, serve

__all__ = [
    "RunningServer",
    "load_libraries",
    "open_socket",
    "prepare_process",
    "run_doctor_checks",
    "running_server",
    "serve",
]
