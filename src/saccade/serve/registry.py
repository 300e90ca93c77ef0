"""The models that are served, and which of them a request means."""

from collections.abc import Sequence

from saccade.config import nearest
from saccade.serve.errors import ApiError
from saccade.serve.models import ServedModel


class ModelRegistry:
    """The models that are served; of two for the same pair the first is meant unless the other is named."""

    def __init__(self, models: Sequence[ServedModel]):
        self.models = {model.name: model for model in models}

    @property
    def languages(self) -> list[str]:
        """Every code, sources first, each once."""
        codes = [model.source for model in self.models.values()] + [model.target for model in self.models.values()]
        return list(dict.fromkeys(codes))

    def targets(self, source: str) -> list[str]:
        return list(dict.fromkeys(m.target for m in self.models.values() if m.source == source))

    def fitting(self, source: str | None, target: str | None, name: str | None = None) -> list[ServedModel]:
        """The models for what was asked; None asks for nothing. What no model can do is refused."""
        if name is not None and name not in self.models:
            raise ApiError(400, f"model: there is no such model{nearest(name[:40], self.models)}")
        for code in (source, target):
            if code is not None and code not in self.languages:
                raise ApiError(400, f"{code[:20]} is not supported{nearest(code[:20], self.languages)}")
        found = [
            model
            for model in self.models.values()
            if name in (None, model.name) and source in (None, model.source) and target in (None, model.target)
        ]
        if not found:
            raise ApiError(400, f"{source or 'any language'} to {target or 'any language'} is not supported")
        return found
