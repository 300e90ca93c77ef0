"""Tasks: how rows become batches, the loss, predictions and metrics."""

from typing import Literal

from saccade.tasks.classification import Classification
from saccade.tasks.tagging import Tagging
from saccade.tasks.task import Task
from saccade.tasks.translation import Translation

TASKS: dict[str, type[Task]] = {"translation": Translation, "tagging": Tagging, "classification": Classification}


def kinds_with(trait: Literal["text_to_text", "has_labels"]) -> str:
    """The kinds of tasks with a property, for messages: "tagging and classification"."""
    return " and ".join(kind for kind, task in TASKS.items() if getattr(task, trait))
