"""All settings of the service, and so all its limits and timeouts. None of the limits can be switched off."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

CountFlag = Annotated[int, Parameter(validator=Number(gte=1))]
NaturalFlag = Annotated[int, Parameter(validator=Number(gte=0))]
SecondsFlag = Annotated[float, Parameter(validator=Number(gt=0, lt=86400))]
NamesFlag = Annotated[tuple[str, ...], Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Settings:
    """The options of `saccade serve`. Times are in seconds."""

    host: str = "127.0.0.1"
    "Address to listen on. Any but a loopback address needs --api-keys or --insecure."
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 5000
    "Port to listen on; 0 picks a free one."
    api_keys: str = ""
    "File of API keys, one per line. Requests must send one of them. SACCADE_API_KEY may hold another one."
    insecure: Annotated[bool, Parameter(negative="")] = False
    "Allow an address other than loopback without API keys."
    allowed_host: NamesFlag = ()
    "Host name under which the service is reached, besides localhost and IP addresses. May be repeated."
    cors: NamesFlag = ()
    "Origin, such as https://example.org, whose pages may call the API; * allows all. May be repeated."

    engine: Literal["auto", "torch", "ctranslate2", "onnx"] = "torch"
    "Inference engine; auto takes CTranslate2 if it is installed and can run the model, otherwise torch."

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    "Device of the torch engine; auto takes cuda, mps or cpu, the first that this machine has."
    deadline: SecondsFlag = 30.0
    "Seconds within which a request is answered, at worst with 503."
    grace: SecondsFlag = 30.0
    "Seconds that running requests have to finish after SIGTERM."
    stall: SecondsFlag = 60.0
    "Seconds that one decoder step (with CTranslate2: one batch) may take before /livez fails."

    batch: CountFlag = 32
    "Maximum number of sentences in a batch."
    batch_time: SecondsFlag = 1.0
    "Seconds that a batch may take; batches are made small enough, because later requests wait for them."
    batch_wait: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.005
    "Seconds that an idle worker waits for more sentences to fill its batch."
    queue: CountFlag = 1000
    "Maximum number of waiting sentences."
    longest_wait: SecondsFlag = 3.0
    "Refuse a request whose sentences would wait longer than this many seconds, by the measured speed of the models."

    characters: CountFlag = 20_000
    "Maximum characters of a request, all its texts together."
    texts: CountFlag = 256
    "Maximum number of texts in a request."
    tokens: CountFlag = 200
    "Maximum tokens of a sentence; a longer one is split, at a clause or a space where possible."
    alternatives: NaturalFlag = 8
    "Maximum number of alternatives that a request may ask for."
    attention_characters: NaturalFlag = 500
    "Maximum characters of a request that asks for attention."

    body_bytes: CountFlag = 1_000_000
    "Maximum bytes of a request body."
    all_bodies_bytes: CountFlag = 64_000_000
    "Maximum bytes of all request bodies in memory."
    head_bytes: Annotated[int, Parameter(validator=Number(gte=256))] = 16_384
    "Maximum bytes of a request head."
    connections: CountFlag = 500
    "Maximum number of open connections."
    head_timeout: SecondsFlag = 10.0
    "Timeout for receiving a request head, in seconds."
    body_timeout: SecondsFlag = 20.0
    "Timeout for receiving a request body, in seconds."
    write_timeout: SecondsFlag = 30.0
    "Close a connection whose client does not read the response for this many seconds."
    keep_alive: SecondsFlag = 15.0
    "Close an idle connection after this many seconds."


DEFAULT_SETTINGS = Settings()
