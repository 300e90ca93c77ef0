"""What the service counts, for Prometheus. No label grows with clients, keys or texts."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

TIME_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counters of one service, in a registry of its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        ProcessCollector(registry=own)
        self.requests = Counter("saccade_requests", "Requests answered.", ["endpoint", "status"], registry=own)
        self.durations = Histogram(
            "saccade_request_duration_seconds", "From head to answer.", ["endpoint"], buckets=TIME_BUCKETS, registry=own
        )
        self.rejected = Counter("saccade_rejected", "Requests turned away.", ["reason"], registry=own)
        self.queue_size = Gauge("saccade_queue_size", "Sentences that wait.", registry=own)
        self.queue_wait = Histogram(
            "saccade_queue_wait_seconds", "How long a sentence waited.", buckets=TIME_BUCKETS, registry=own
        )
        self.batch_size = Histogram(
            "saccade_batch_size", "Sentences in a batch.", buckets=BATCH_SIZE_BUCKETS, registry=own
        )
        self.tokens = Counter("saccade_tokens", "Tokens read and written.", ["side"], registry=own)

    def answered(self, endpoint: str, status: int, seconds: float, reason: str) -> None:
        """A request, and why it was turned away if it was."""
        self.requests.labels(endpoint, status).inc()
        self.durations.labels(endpoint).observe(seconds)
        if reason:
            self.rejected.labels(reason).inc()

    def page(self) -> bytes:
        return generate_latest(self.registry)
