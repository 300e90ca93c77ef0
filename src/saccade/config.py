"""TOML files → typed, frozen config. A slot of the config holds a Choice: a kind and its options.

A kind stands for a factory: a class or a function. Its keyword-only parameters are the options, so its signature is the
schema. The positional ones are the wiring (dim, causal, …): values that the code which calls the factory passes by
name. A trailing underscore does not belong to the config key: parameter `self_` is key `self`, which Python cannot use
as a name.
"""

import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from saccade.errors import BuildError, ConfigError

_T = TypeVar("_T")

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


def suggestion(name: str, names: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the most similar known name, or all of them."""
    names = sorted(names)
    best = difflib.get_close_matches(name, names, 1)
    return f"; did you mean '{best[0]}'?" if best else f" (known: {', '.join(names) or 'none'})"


# ── typed tables, slots and choices ───────────────────────────────────────────────────────────────


class Config(BaseModel):
    """A frozen table of the config. Unknown keys, wrong types and NaN are errors. `owner` says whose options these are,
    such as " of 'rms'", in the message about an unknown key."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", validate_default=True, allow_inf_nan=False)
    owner: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        unknown = [key for key in data if key not in cls.model_fields]
        if unknown:
            known = cls.model_fields
            ends = {key: suggestion(key, known) if known else ", which has no options" for key in unknown}
            raise invalid({(key,): f"unknown key{cls.owner}{end}" for key, end in ends.items()})
        return {key: _with_kind(value, cls.model_fields[key]) for key, value in data.items()}


def invalid(reasons: Mapping[tuple[str | int, ...], str]) -> ValidationError:
    """The error of a validator that refuses several keys, each for a reason."""
    details = [InitErrorDetails(type=custom_error(text), loc=key, input=None) for key, text in reasons.items()]
    return ValidationError.from_exception_data("config", details)


def custom_error(text: str) -> PydanticCustomError:
    return PydanticCustomError("saccade", "{text}", {"text": text})


@dataclass(frozen=True)
class Choice:
    """The value of a slot: a kind, its class or function, and its options. `build` calls it with the wiring."""

    kind: str
    factory: Callable[..., Any]
    options: Mapping[str, Any]

    def __call__(self, *args: Any, **wiring: Any) -> Any:
        if (used := _USED.get()) is not None:
            used.add(id(self))
        options = {parameter: self.options[key] for parameter, key in _options(self.factory).items()}
        return self.factory(*args, **wiring, **options)

    def table(self) -> dict[str, Any]:
        """The choice as a table of dicts, lists and scalars."""
        return {"kind": self.kind} | {name: plain(option) for name, option in self.options.items()}


def kind_of(choice: Any) -> str:
    """The name of the kind that a slot was given."""
    return choice.kind


def factory_of(choice: Any) -> Any:
    """The class or function that a slot was given."""
    return choice.factory


_USED: ContextVar[set[int] | None] = ContextVar("used", default=None)


@contextmanager
def used_choices() -> Iterator[set[int]]:
    """Collect the id() of each Choice that is called inside the `with` block."""
    used: set[int] = set()
    token = _USED.set(used)
    try:
        yield used
    finally:
        _USED.reset(token)


def mark_base_used(base: Any, derived: Any) -> None:
    """Count a choice as used if one that was derived from it, and so has the same kind, was used; also inside both."""
    used = _USED.get()
    if used is None or id(derived) not in used or base.kind != derived.kind:
        return
    used.add(id(base))
    for name, option in base.options.items():
        if isinstance(option, Choice):
            mark_base_used(option, derived.options[name])


def unused_choices(config: Any, used: Container[int], key: str = "") -> Iterator[str]:
    """The dotted keys of slots of a config whose choice is not the default and was not used, outermost first."""
    if isinstance(config, tuple):
        for number, item in enumerate(config):
            yield from unused_choices(item, used, f"{key}.{number}")
    for name, field, value in _fields_of(config):
        dotted = f"{key}.{name}" if key else name
        slot = _slot(field)
        if slot and id(value) not in used:
            if field.is_required() or plain(value) != plain(slot.fill(field.default)):
                yield dotted
        else:
            yield from unused_choices(value, used, dotted)


def choices_of(config: Any, key: str) -> Iterator[tuple[str, Choice]]:
    """Every choice of a config, also those inside other choices, with its dotted key."""
    if isinstance(config, Choice):
        yield key, config
    if isinstance(config, tuple):
        for number, item in enumerate(config):
            yield from choices_of(item, f"{key}.{number}")
    for name, _, value in _fields_of(config):
        yield from choices_of(value, f"{key}.{name}")


def _fields_of(config: Any) -> Iterator[tuple[str, FieldInfo, Any]]:
    """Name, field and value of each key of a table or of the options of a choice."""
    if isinstance(config, Config):
        fields = type(config).model_fields
        yield from ((name, field, getattr(config, name)) for name, field in fields.items())
    elif isinstance(config, Choice):
        fields = schema(config.kind, config.factory).model_fields
        yield from ((name, field, config.options[name]) for name, field in fields.items())


class Slot:
    """A field or parameter whose value is a Choice from a table: `Annotated[Callable[..., Norm], Slot(NORMS)]`."""

    def __init__(self, table: Mapping[str, Callable[..., Any]]):
        self.table = table

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.fill)

    def kind_of(self, default: Any) -> str:
        """The kind of a default value, which is a Choice or an entry of the table."""
        if isinstance(default, Choice):
            return default.kind
        return next(kind for kind, factory in self.table.items() if factory is default)

    def fill(self, value: Any) -> Choice:
        """The Choice for a value of the config: a kind, a table with a kind and options, or an entry of the table."""
        if isinstance(value, Choice):
            return value
        if callable(value):
            value = self.kind_of(value)
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            raise custom_error(f"expected one of {', '.join(self.table)}, or a table with 'kind'; got {value!r}")
        kind, options = value["kind"], {k: v for k, v in value.items() if k != "kind"}
        if kind not in self.table:
            raise custom_error(f"unknown kind '{kind}'" + suggestion(kind, self.table))
        checked = schema(kind, self.table[kind]).model_validate(options)
        return Choice(kind, self.table[kind], {name: getattr(checked, name) for name in type(checked).model_fields})


def _slot(field: FieldInfo) -> Slot | None:
    return next((m for m in field.metadata if isinstance(m, Slot)), None)


def _with_kind(value: Any, field: FieldInfo) -> Any:
    """Add the default kind to a table of options without a kind, such as `norm.eps = 1e-3`."""
    slot = _slot(field)
    if slot and isinstance(value, dict) and "kind" not in value and not field.is_required():
        return {"kind": slot.kind_of(field.default)} | value
    return value


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(factory).parameters


@functools.cache
def _options(factory: Callable[..., Any]) -> dict[str, str]:
    """The options of a class or function: parameter → config key."""
    return {p.name: p.name.rstrip("_") for p in _parameters(factory).values() if p.kind is p.KEYWORD_ONLY}


def option_keys(factory: Callable[..., Any]) -> set[str]:
    """The config keys of the options of a class or function."""
    return {*_options(factory).values()}


def wiring(factory: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the values that a class, function or Choice needs from the code that calls it."""
    inner = factory.factory if isinstance(factory, Choice) else factory
    return _wiring(inner.func if isinstance(inner, functools.partial) else inner)


@functools.cache
def _wiring(factory: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(p.name for p in _parameters(factory).values() if p.kind is p.POSITIONAL_OR_KEYWORD)


@functools.cache
def schema(kind: str, factory: Callable[..., Any]) -> type[Config]:
    """The options of a class or function as a Config class, created from its signature."""
    init = factory.__init__ if inspect.isclass(factory) else factory
    hints = typing.get_type_hints(init, include_extras=True)
    parameters = _parameters(factory)
    fields: dict[str, Any] = {
        key: (hints[p], ... if parameters[p].default is inspect.Parameter.empty else parameters[p].default)
        for p, key in _options(factory).items()
    }
    table = create_model(kind, __base__=Config, **fields)
    table.owner = f" of '{kind}'"
    return table


def build(factory: Callable[..., _T], key: str, /, **available: Any) -> _T:
    """Call a class, function or Choice with those of the available wiring values that it takes. `key` is its config
    key, which is prepended to the key of a BuildError."""
    try:
        return factory(**{name: available[name] for name in wiring(factory) if name in available})
    except BuildError as error:
        raise BuildError(error.reason, (key, *error.key)) from None


def plain(value: Any) -> Any:
    """The value as dicts, lists and scalars, for TOML and JSON."""
    if isinstance(value, Config):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Choice):
        return value.table()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def leaves(tree: Any, key: str = "") -> dict[str, Any]:
    """Flatten nested tables and arrays of tables: dotted key → value. Other arrays count as values."""
    if isinstance(tree, (list, tuple)) and tree and isinstance(tree[0], dict):
        tree = {str(number): item for number, item in enumerate(tree)}
    if not isinstance(tree, dict):
        return {key: tree}
    return {k: v for name, sub in tree.items() for k, v in leaves(sub, f"{key}.{name}" if key else name).items()}


# ── layers: files first, then flags; each value stores its origin ─────────────────────────────────


@dataclass(frozen=True)
class Given:
    """A value with its origin: a file or a flag."""

    value: Any
    origin: str


def _given(tree: Any, origin: str) -> Any:
    if isinstance(tree, dict):
        return {key: _given(value, origin) for key, value in tree.items()}
    return Given(with_tuples(tree), origin)


def with_tuples(tree: Any) -> Any:
    """The tree with tuples instead of lists, because a config is immutable."""
    if isinstance(tree, dict):
        return {key: with_tuples(value) for key, value in tree.items()}
    return tuple(map(with_tuples, tree)) if isinstance(tree, (list, tuple)) else tree


def _values(tree: Any) -> Any:
    return {k: _values(v) for k, v in tree.items()} if isinstance(tree, dict) else tree.value


def merge(base: Any, over: Any) -> Any:
    """Merge two layers: tables merge, other values of `over` replace those of `base`, and another kind discards the
    options of the previous kind."""
    if isinstance(base, Given) and isinstance(base.value, str) and isinstance(over, dict):
        base = {"kind": base}
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    if "kind" in over and "kind" in base and _values(over["kind"]) != _values(base["kind"]):
        return over
    return base | {key: merge(base[key], value) if key in base else value for key, value in over.items()}


def with_default_kinds(tree: Any, table: type[Config]) -> Any:
    """The tree of a config table in which each slot names its kind, so that a layer with another kind, merged over it,
    discards the options of the default kind, too."""
    if not isinstance(tree, dict):
        return tree
    fields = table.model_fields
    return {key: _with_default_kind(value, fields[key]) if key in fields else value for key, value in tree.items()}


def _with_default_kind(tree: Any, field: FieldInfo) -> Any:
    if not isinstance(tree, dict):
        return tree
    slot = _slot(field)
    if slot is None:
        table: Any = field.annotation
        return with_default_kinds(tree, table) if inspect.isclass(table) and issubclass(table, Config) else tree
    if "kind" not in tree and not field.is_required():
        tree = {"kind": Given(slot.kind_of(field.default), "default")} | tree
    kind = tree["kind"].value if isinstance(tree.get("kind"), Given) else None
    if not isinstance(kind, str) or kind not in slot.table:
        return tree
    return with_default_kinds(tree, schema(kind, slot.table[kind]))


def merged_tables(base: Mapping[str, Any], over: Mapping[str, Any]) -> Any:
    """`merge` for tables of plain values."""
    return _values(merge(_given(dict(base), ""), _given(dict(over), "")))


@dataclass(frozen=True)
class Resolved:
    """A config, and the origin of each dotted key that was set."""

    config: Any
    origins: dict[str, str]


def resolve(root: type[Config], layers: Sequence[Any]) -> Resolved:
    """Merge the layers (the last one wins) and validate the result."""
    tree: Any = {}
    for layer in layers:
        tree = merge(with_default_kinds(tree, root), layer)
    try:
        config = root.model_validate(_values(tree))
    except ValidationError as error:
        raise ConfigError("\n".join(_message(e) for e in error.errors())) from None
    given = leaves(tree).items()
    return Resolved(config, {key: value.origin for name, value in given for key in leaves(value.value, name)})


EXPECTED = {  # by the type of the pydantic error
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text in quotes",
    "tuple_type": "expected an array in brackets",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "missing": "is missing; add it to the file, or give it with --set KEY=VALUE",
    "finite_number": "expected a finite number",
}


def _message(error: Any) -> str:
    key = ".".join(map(str, error["loc"]))
    if error["type"] == "saccade":
        return f"{key}: {error['msg']}"
    if error["type"] == "missing" and isinstance(error["loc"][-1], int):
        *array, index = error["loc"]
        return f"{'.'.join(map(str, array))}: has too few values; value number {index + 1} is missing"
    if error["type"] == "missing":
        return f"{key}: {EXPECTED['missing']}"
    text = EXPECTED.get(error["type"]) or error["msg"].replace("Input should be", "must be")
    if error["type"] == "literal_error":
        text = text.replace("True", "true").replace("False", "false")  # as in TOML
    return f"{key}: {text}, got {error['input']!r}"


def python_layer(tree: Mapping[str, Any], origin: str = "Python") -> Any:
    """A layer from a nested dict."""
    return _given(dict(tree), origin)


def to_toml(config: Config) -> str:
    return tomli_w.dumps(plain(config))
