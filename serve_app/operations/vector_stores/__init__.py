"""Vector stores and the tool that searches them, over `deployments.tools.search_index`."""
