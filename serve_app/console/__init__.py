"""The console: pages at /console for account holders and operators, rendered by the ingress.

`routes` is its table. A page calls the same services and operations as the routes of the interface, under the principal
of its session, and never over HTTP.
"""
