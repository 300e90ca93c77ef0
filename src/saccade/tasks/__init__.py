"""Tasks: how rows become batches, the loss, predictions and metrics."""

from saccade.tasks.classification import Classification
from saccade.tasks.tagging import Tagging
from saccade.tasks.translation import Translation

TASKS = {"translation": Translation, "tagging": Tagging, "classification": Classification}
