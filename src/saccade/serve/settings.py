"""Every limit and time-out of the service, in one place. None of them is off."""

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
    """What the service allows. Times are in seconds."""

    host: str = "127.0.0.1"
    "Address to listen on. Others than this machine's own want --api-keys or --insecure."
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65535))] = 5000
    "Port to listen on; 0 takes a free one."
    api_keys: str = ""
    "A file of keys, one a line, of which requests must send one. SACCADE_API_KEY may hold one as well."
    insecure: Annotated[bool, Parameter(negative="")] = False
    "Let anyone who can reach the address translate."
    allowed_host: NamesFlag = ()
    "A name this service is reached by, beside localhost and bare addresses. May be repeated."
    cors: NamesFlag = ()
    "An origin, such as https://example.org, whose pages may call; * is all. May be repeated."

    engine: Literal["auto", "torch", "ctranslate2", "onnx"] = "torch"
    "What translates; auto takes the fastest that is installed and can run the model."

    deadline: SecondsFlag = 30.0
    "A request is answered within this time, if only with 503."
    grace: SecondsFlag = 30.0
    "After SIGTERM, requests in flight have this time to end."
    stall: SecondsFlag = 60.0
    "/livez fails when a model has not moved for so long."

    batch: CountFlag = 32
    "Sentences translated together, at most."
    batch_time: SecondsFlag = 1.0
    "A batch that would last longer is made smaller, because whoever comes next must wait for it."
    batch_wait: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.005
    "How long an idle model waits for more sentences to translate together."
    queue: CountFlag = 1000
    "Sentences that may wait."
    longest_wait: SecondsFlag = 3.0
    "No more requests are taken while the work that waits would last longer than this."

    characters: CountFlag = 20_000
    "Longest text of a request, all its parts together."
    texts: CountFlag = 256
    "Most texts in a request."
    tokens: CountFlag = 200
    "A longer sentence is cut at the best place."
    alternatives: NaturalFlag = 8
    "Most alternatives a request may ask for."
    attention_characters: NaturalFlag = 500
    "Longest text whose attention is sent."

    body: CountFlag = 1_000_000
    "Bytes of a request's body."
    bodies: CountFlag = 64_000_000
    "Bytes of all bodies that are held at a time."
    header: Annotated[int, Parameter(validator=Number(gte=256))] = 16_384
    "Bytes of a request's head."
    connections: CountFlag = 500
    "Connections that are open at a time."
    header_timeout: SecondsFlag = 10.0
    "A request's head must come within this time."
    body_timeout: SecondsFlag = 20.0
    "A request's body must come within this time."
    write_timeout: SecondsFlag = 30.0
    "An answer must be read within this time."
    keep_alive: SecondsFlag = 15.0
    "An idle connection is closed after this time."


DEFAULT_SETTINGS = Settings()
