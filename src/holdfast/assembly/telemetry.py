"""Metrics and traces."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.adapters.telemetry import factory
from holdfast.config import Settings
from holdfast.ports.services import Services

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otel import OtelTelemetry


def open_telemetry(settings: Settings, stack: AsyncExitStack) -> "OtelTelemetry | None":
    telemetry = factory.open_telemetry(
        settings.otlp_endpoint,
        metrics=settings.metrics != "off",
        with_content=settings.telemetry_content,
    )
    if telemetry is not None:
        stack.push_async_callback(telemetry.aclose)
    return telemetry


def with_telemetry(services: Services, telemetry: "OtelTelemetry") -> Services:
    return replace(
        services,
        model=telemetry.instrument_model(services.model),
        embedder=telemetry.instrument_embedder(services.embedder),
        toolbox=telemetry.instrument_toolbox(services.toolbox),
        telemetry=telemetry,
    )
