"""Models out of Saccade and into it: one file a format, and engines that run what was written."""
