"""Headers that the service adds to every response."""

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
NO_STORE = {"cache-control": "no-store"}  # unless the response has its own cache-control
