"""Models as other processes reach them: which there are, and their engines over the side channel."""
