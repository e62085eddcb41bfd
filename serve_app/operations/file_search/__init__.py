"""Vector stores and the tool that searches them, over `deployments.tools.file_search`."""
