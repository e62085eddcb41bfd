"""The console: pages at /console for account holders and operators, rendered by the ingress.

`routes` lists its paths. A page calls the same services and operations as the API's routes, directly, with the
principal of its session.
"""
