"""Opens the telemetry that the settings ask for."""

from typing import TYPE_CHECKING

from holdfast.errors import SettingInvalid

if TYPE_CHECKING:
    from holdfast.adapters.telemetry.otel import OtelTelemetry


def open_telemetry(
    endpoint: str | None, *, metrics: bool, with_content: bool
) -> "OtelTelemetry | None":
    """None if neither traces nor metrics are on; then OpenTelemetry is not imported."""
    if endpoint is None and not metrics:
        return None
    try:
        # Imported here because OpenTelemetry's SDK is an extra that most servers do without.
        from holdfast.adapters.telemetry.otel import OtelTelemetry  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise SettingInvalid(
            "HOLDFAST_METRICS and OTEL_EXPORTER_OTLP_ENDPOINT need OpenTelemetry: "
            "pip install 'holdfast[otel]'"
        ) from error
    return OtelTelemetry.export_to(endpoint, with_content=with_content)
