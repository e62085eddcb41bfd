"""Searching the web and reading its pages: the services that are asked, and pages as text. Knows no responses."""
