"""The served models, and which of them a request can use."""

from collections.abc import Iterable, Sequence

from saccade.config import suggestion
from saccade.serve.errors import ApiError
from saccade.serve.models import ServedModel


def source_languages(models: Iterable[ServedModel]) -> list[str]:
    """The source language codes of these models, each once."""
    return list(dict.fromkeys(model.source for model in models))


def target_languages(models: Iterable[ServedModel]) -> list[str]:
    """The target language codes of these models, each once."""
    return list(dict.fromkeys(model.target for model in models))


class ModelRegistry:
    """The served models by name. Of several for one language pair the first is used unless the request names one."""

    def __init__(self, models: Sequence[ServedModel]):
        self.models = {model.name: model for model in models}

    @property
    def languages(self) -> list[str]:
        """All language codes, source languages first, each once."""
        models = self.models.values()
        return list(dict.fromkeys([*source_languages(models), *target_languages(models)]))

    def targets_of(self, source: str) -> list[str]:
        """The languages into which `source` can be translated."""
        return target_languages(model for model in self.models.values() if model.source == source)

    def matching(self, source: str | None, target: str | None, name: str | None = None) -> list[ServedModel]:
        """The models with this source language, target language and name, where None matches all. A 400 if there is
        none."""
        if name is not None and name not in self.models:
            raise ApiError(400, f"model: there is no such model{suggestion(name[:40], self.models)}")
        for field, code in (("source", source), ("target", target)):
            if code is not None and code not in self.languages:
                known = suggestion(code[:20], self.languages)
                raise ApiError(400, f"{field}: language {code[:20]} is not supported{known}")
        models = [
            model
            for model in self.models.values()
            if name in (None, model.name) and source in (None, model.source) and target in (None, model.target)
        ]
        if not models:
            pair = f"{source or 'any language'} to {target or 'any language'}"
            if name is not None:
                raise ApiError(
                    400,
                    f"model {name[:40]} does not translate {pair}; choose another model (GET /v1/models lists "
                    "them), or leave 'model' out",
                )
            raise ApiError(400, f"{pair} is not supported; GET /languages lists the targets of each source language")
        return models
