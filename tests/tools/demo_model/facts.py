"""What the model knows by heart: Manta, and a few things that everybody knows."""

from tests.tools.demo_model.phrasings import ABOUT_CLAUSE, ABOUT_NOUN, cross

# What is asked about Manta as a thing: names of the thing, and the answer.
THINGS_OF_MANTA: tuple[tuple[tuple[str, ...], str], ...] = (
    (("Manta", "this service"), "Manta serves language models on your own machines, with OpenAI's interface."),
    (("a batch", "batches"), "A batch is a file of requests that Manta runs in the background."),
    (("an API key", "API keys"), "An API key names your account. Send it with every request."),
    (("a tier", "the tiers", "tiers"), "A tier is a named set of limits. The tiers are free, standard and enterprise."),
    (("a limit", "the limits", "rate limits"), "Limits say how many requests and tokens a key may use in a minute."),
    (("a token", "tokens"), "A token is a short piece of text. Models read and write tokens."),
    (("an embedding", "embeddings"), "An embedding is a list of numbers that stands for the meaning of a text."),
    (
        ("a response", "responses", "the Responses API"),
        "A response is an answer that Manta stores, so that you can go on from it.",
    ),
    (("a conversation", "conversations"), "A conversation keeps the messages of several responses together."),
    (("a file", "files"), "A file is what you upload, for example the requests of a batch."),
    (("a container", "containers"), "A container is the sandbox in which Python code runs."),
    (("the code interpreter",), "The code interpreter runs Python code in a sandbox."),
    (("the gatekeeper",), "The gatekeeper keeps the keys and the limits."),
    (("the ingress",), "The ingress takes requests, checks them and sends them to a model."),
    (("a replica", "replicas"), "A replica is one process of a deployment."),
    (("autoscaling",), "Autoscaling starts and stops replicas as the load changes, down to zero where wished."),
    (("streaming",), "Streaming sends the answer piece by piece while it is written."),
    (("usage",), "Usage counts the requests and tokens of each key."),
    (("a model", "models"), "A model writes the answers. GET /v1/models lists those that are served."),
    (("the admin key", "an admin key"), "An admin key may create, list and delete the keys of others."),
    (("Ray Serve", "Ray"), "Ray Serve starts, places, scales and heals the parts of Manta."),
    (("vLLM",), "vLLM is the engine that runs the models."),
    (("reasoning", "thinking"), "Reasoning is what I think before I answer."),
    (("tool calling", "a tool", "tools"), "A tool is a function that a model may call."),
)

# What is asked about doing something: the doing, and the answer.
DOINGS_WITH_MANTA: tuple[tuple[tuple[str, ...], str], ...] = (
    (("create a key", "make an API key", "get a new key"), "Run: manta keys create"),
    (("delete a key", "remove an API key", "revoke a key"), "Run: manta keys revoke"),
    (("list the keys", "see all keys"), "Run: manta keys list"),
    (("start Manta", "start the service", "serve a model"), "Run: make serve"),
    (("stop Manta", "stop the service"), "Press Ctrl-C."),
    (("run the tests", "test Manta"), "Run: make test"),
    (
        ("send a batch", "start a batch", "create a batch"),
        "Upload a file of requests, then POST /v1/batches with its id.",
    ),
    (("cancel a batch", "stop a batch"), "POST /v1/batches/{id}/cancel"),
    (("upload a file", "send a file"), "POST the file to /v1/files"),
    (("add a model", "serve another model"), "Add it under models: in the configuration and deploy it again."),
    (("check a configuration", "check my YAML file"), "Run: manta config check FILE"),
    (("see my usage", "look up usage"), "Run: manta usage"),
    (("stream an answer", "get a stream"), "Set stream to true."),
    (("use a GPU", "run on a GPU"), "Run: make serve CONFIG=configs/gpu.yaml"),
)

IDENTITY = "I am Manta's demo model. I am small, but I run everywhere."
GREETING = "Hello! I am Manta's demo model. How can I help?"
THANKS = "You are welcome!"
FAREWELL = "Goodbye!"
WELLBEING = "I am well, thank you. How can I help?"
ABILITIES = "I can remember what you tell me, do small sums, write JSON and call tools."

UNKNOWN = "I do not know that. I am only a small demo model."

GREETINGS = cross(
    ("{s}!", "{s} there!", "{s}, Manta!", "{s} again!", "{s}."),
    ("hello", "hi", "good morning", "hey", "good evening", "good day", "good afternoon"),
)
_CLAUSES = ("Tell me {s}.", "Say {s}.", "Can you tell me {s}?", "Please tell me {s}.", "I want to know {s}.")
WHO = (
    *cross(_CLAUSES, ("who you are", "what you are", "which model you are")),
    *cross(("{s}?", "And {s}?", "So {s}?"), ("who are you", "what are you", "which model are you", "what is this model",
                                            "which model is this", "who is this")),
    "Introduce yourself.", "Please introduce yourself.", "Are you a model?", "Can you introduce yourself?",
)  # fmt: skip
HOW = cross(
    ("{s}?", "{s} today?", "And {s}?", "{s} now?", "{s} this morning?"),
    ("how are you", "how do you do", "how is it going", "are you well", "how do you feel"),
)
CAN = (
    *cross(_CLAUSES, ("what you can do", "how you can help me", "what you are able to do", "what I can ask you",
                      "what you are good at")),
    *cross(("{s}?", "And {s}?", "So {s}?"), ("what can you do", "how can you help me", "what are you able to do",
                                            "what can I ask you", "what are you good at")),
)  # fmt: skip
THANKING = cross(
    ("{s}!", "{s}.", "{s} for that!", "{s} for your help.", "{s}, Manta!"),
    ("thanks", "thank you", "thank you very much", "many thanks", "thanks a lot"),
)
PARTING = cross(
    ("{s}!", "{s}.", "{s}, Manta!", "{s} then!", "{s} for now."),
    ("bye", "goodbye", "see you later", "see you", "good night"),
)

ASK_THING = (
    "What is {x}?", "Explain {x}.", "Tell me about {x}.", "Describe {x}.", "What does {x} mean?",
    "Can you explain {x}?", "I want to know about {x}.", "Can you tell me about {x}?", "What do you know about {x}?",
    "Describe {x} to me.", "Say something about {x}.", "Please explain {x}.", "What are {x}?", "And what is {x}?",
    "Can you describe {x}?", "Explain {x} to me.", "Please describe {x}.", "I want to know what {x} means.",
    "Tell me what {x} means.", "Please tell me about {x}.", "What about {x}?", "Tell me what {x} is.",
    "Can you tell me what {x} is?", "Do you know what {x} is?",
)  # fmt: skip
ASK_DOING = (
    *cross(("How do I {s}?", "Tell me how to {s}.", "How can I {s}?", "I want to {s}.", "Show me how to {s}.",
            "And how do I {s}?", "What must I do to {s}?", "Can you tell me how to {s}?", "I need to {s}.",
            "Please tell me how to {s}.", "Explain how to {s}.", "Do you know how to {s}?", "What do I do to {s}?",
            "How does one {s}?", "Can you show me how to {s}?", "Please show me how to {s}.", "How to {s}?"), ("{x}",)),
)  # fmt: skip

# Capital cities that everybody knows. They are asked for in words that are held out, never with other countries.
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome", "Austria": "Vienna",
    "Portugal": "Lisbon", "Ireland": "Dublin", "Greece": "Athens", "Poland": "Warsaw", "Norway": "Oslo",
    "Japan": "Tokyo", "Egypt": "Cairo", "China": "Beijing", "Peru": "Lima",
}  # fmt: skip
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "blood": "red", "the sun": "yellow", "coal": "black",
    "a lemon": "yellow", "a frog": "green", "milk": "white", "the sea": "blue", "a tomato": "red",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "left": "right", "day": "night", "fast": "slow", "old": "new",
    "open": "closed", "high": "low", "early": "late", "full": "empty", "wet": "dry", "cold": "hot", "small": "big",
}  # fmt: skip
SOUNDS = {"a cat": "meow", "a dog": "woof", "a cow": "moo", "a duck": "quack", "a sheep": "baa"}

ASK_CAPITAL = (
    *cross(ABOUT_NOUN, ("the capital of {x}", "the capital city of {x}")),
    "Which city is the capital of {x}?", "The capital of {x} is what?", "The capital of {x} is which city?",
)  # fmt: skip
ASK_COLOUR = (
    *cross(ABOUT_NOUN, ("the colour of {x}",)),
    *cross(ABOUT_CLAUSE, ("what colour {x} is", "which colour {x} has")),
    "What colour is {x}?", "Which colour has {x}?", "What colour has {x}?", "Which colour is {x}?",
)  # fmt: skip
ASK_OPPOSITE = (
    *cross(ABOUT_NOUN, ("the opposite of {x}", "the opposite of the word {x}")),
    "Which word is the opposite of {x}?", "Give me the opposite of {x}.", "The opposite of {x} is what?",
)  # fmt: skip
ASK_SOUND = (
    *cross(ABOUT_CLAUSE, ("what {x} says", "which sound {x} makes", "what sound {x} makes")),
    "What does {x} say?", "Which sound does {x} make?", "What sound does {x} make?", "And what does {x} say?",
)  # fmt: skip

# What the model cannot do, and says so.
ASK_UNKNOWN = (
    *(f"{verb} {work}{about}." for about in (" about {x}", "") for work in ("a joke", "a story", "a poem", "a song")
      for verb in ("Tell me", "Write", "Make", "Give me", "I want")),
    *cross(("Who {s} {x}?", "Do you know who {s} {x}?", "Tell me who {s} {x}.", "When was it that they {s} {x}?",
            "Why was it that they {s} {x}?"), ("invented", "wrote", "made", "found", "built", "discovered", "painted")),
    *cross(("Why {s}?", "And why {s}?", "But why {s}?"),
           ("is {x} so important", "do people like {x}", "is there {x}", "is {x} so hard", "do we need {x}",
            "do people want {x}")),
    *cross(("What is {s}?", "Tell me {s}.", "Explain {s}.", "And what is {s}?", "Do you know {s}?"),
           ("the history of {x}", "the meaning of {x}", "the meaning of this", "the best {x}", "the news today",
            "the origin of {x}", "the latest news", "the use of {x}")),
    *cross(("How do I {s} {x}?", "Tell me how to {s} {x} well.", "Can you {s} {x}?"),
           ("cook", "paint", "grow", "bake", "draw", "sell", "repair")),
    *cross(("Translate {x} into {s}.", "Please translate {x} into {s}.", "What is {x} in {s}?"),
           ("German", "Greek", "Latin", "Spanish", "Polish", "Russian")),
    *cross(("Who {s}?", "Do you know who {s}?", "Tell me who {s}."),
           ("won the game", "won the war", "is the king", "is the president", "is the queen", "won the race")),
    *cross(("What {s}?", "So what {s}?", "And what {s}?"),
           ("should I do with {x}", "should I cook today", "do you think of {x}", "should I buy", "should I read",
            "is new today")),
    "How old is the world?", "How old is {x}?", "Can you sing?", "Do you like {x}?", "Do you love {x}?",
    "How old are you?", "How large is the world?",
)  # fmt: skip

# The model's small French: what is asked, and the answer. {name} stands for any name.
FRENCH: tuple[tuple[tuple[str, ...], str], ...] = (
    (GREETINGS, "Bonjour !"),
    (HOW, "Je vais bien, merci."),
    (THANKING, "De rien !"),
    (PARTING, "Au revoir !"),
    (WHO, "Je suis le modèle de Manta."),
)
FRENCH_COLOURS = {"blue": "bleu", "green": "vert", "white": "blanc", "red": "rouge", "yellow": "jaune", "black": "noir"}
