"""Prometheus metrics of the service. No label takes values that depend on clients, keys or texts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

TIME_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one service, in their own registry."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        ProcessCollector(registry=own)
        self.requests = Counter("saccade_requests", "Answered requests.", ["endpoint", "status"], registry=own)
        self.durations = Histogram(
            "saccade_request_duration_seconds",
            "Time from the request's head to the end of the response.",
            ["endpoint"],
            buckets=TIME_BUCKETS,
            registry=own,
        )
        self.rejected = Counter("saccade_rejected", "Rejected requests.", ["reason"], registry=own)
        self.queue_size = Gauge("saccade_queue_size", "Sentences waiting in the queue.", registry=own)
        self.queue_wait = Histogram(
            "saccade_queue_wait_seconds", "Time a sentence waited in the queue.", buckets=TIME_BUCKETS, registry=own
        )
        self.batch_size = Histogram(
            "saccade_batch_size", "Sentences in a batch.", buckets=BATCH_SIZE_BUCKETS, registry=own
        )
        self.tokens = Counter("saccade_tokens", "Source tokens and output tokens.", ["side"], registry=own)

    def count_response(self, endpoint: str, status: int, seconds: float, reason: str) -> None:
        """Count a response; `reason` is why it was rejected, or empty."""
        self.requests.labels(endpoint, status).inc()
        self.durations.labels(endpoint).observe(seconds)
        if reason:
            self.rejected.labels(reason).inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus text format."""
        return generate_latest(self.registry)
