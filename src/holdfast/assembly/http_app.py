"""The HTTP application on top of a running server."""

from starlette.types import ASGIApp

from holdfast.assembly.lifespan import RunningServer
from holdfast.config import Settings
from holdfast.core.servers import Role
from holdfast.http.app import WIRES, HttpSettings, build_app
from holdfast.http.request_metrics import METRICS_PATH
from holdfast.http.worker_gate import WorkerGate


def build_http_app(settings: Settings, running: RunningServer) -> ASGIApp:
    app = build_app(running.services, _http_settings(settings, running))
    if settings.role is Role.WORKER:
        return WorkerGate(app, WIRES, WIRES.open_paths | {METRICS_PATH})
    return app


def _http_settings(settings: Settings, running: RunningServer) -> HttpSettings:
    return HttpSettings(
        password=settings.password,
        max_body_bytes=settings.max_body_bytes,
        max_file_mb=settings.max_file_mb,
        loopback_only_hosts=not settings.insecure,
        telemetry=running.telemetry,
        tool_connections=running.tool_connections,
        trusted_proxies=settings.trusted_proxies,
        metrics=settings.metrics != "off",
        open_metrics=settings.metrics == "open",
    )
