"""Where the service is, and what every client asks: the same words get the same answers whichever client asks."""

import os

from pydantic import BaseModel

BASE_URL = os.environ["BASE_URL"]
API_KEY = os.environ["API_KEY"]
MODEL = os.environ["MODEL"]
EMBEDDING_MODEL = os.environ["EMBEDDING_MODEL"]

HELLO = "Hello there!"
RAIN = "It rains in Kiel."
VECTOR = [0.25, -0.5, 1.0]


class Place(BaseModel):
    """A place on a map."""

    city: str


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"It rains in {city}."
