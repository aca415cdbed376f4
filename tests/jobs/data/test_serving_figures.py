"""Figures of served models, by version, from a server's metrics."""

from __future__ import annotations

import pytest

from weft.jobs.data.serving import figures_by_version, parse_figures

METRICS = """
weft_requests_total{model="digits",version="1"} 90.0
weft_requests_total{model="digits",version="2"} 10.0
weft_failures_total{model="digits",version="2",status="500"} 4.0
weft_request_seconds_bucket{model="digits",version="1",le="0.01"} 90.0
weft_request_seconds_bucket{model="digits",version="1",le="+Inf"} 90.0
weft_request_seconds_bucket{model="digits",version="2",le="0.01"} 0.0
weft_request_seconds_bucket{model="digits",version="2",le="0.1"} 10.0
weft_request_seconds_bucket{model="digits",version="2",le="+Inf"} 10.0
weft_model_ready{model="digits",version="1"} 1.0
weft_model_ready{model="digits",version="2"} 1.0
weft_in_flight 1.0
"""


def test_a_canary_has_figures_of_its_own() -> None:
    whole, parts = parse_figures(METRICS), figures_by_version(METRICS)
    assert (whole.requests, whole.failures, whole.versions) == (100, 4, (1, 2))
    assert {version: (one.requests, one.failures) for version, one in parts.items()} == {
        1: (90, 0),
        2: (10, 4),
    }
    assert parts[1].p50_ms == pytest.approx(5.0)
    assert parts[2].p50_ms == pytest.approx(55.0)
