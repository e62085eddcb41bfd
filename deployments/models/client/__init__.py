"""Models as other processes reach them: the directory, and engines over the side channel."""
