"""Tasks: what a batch means, its loss, its measures."""

from saccade.tasks.translation import Translation

TASKS = {"translation": Translation}
