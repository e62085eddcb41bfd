"""What the model knows about Manta by heart, from its own pages, and how it is asked."""

from tests.tools.demo_model.exchange import Exchange
from tests.tools.demo_model.phrasings import cross
from tests.tools.demo_model.spelling import typed
from tests.tools.demo_model.words import Draw

Known = tuple[tuple[tuple[str, ...], str], ...]

_KEYS = "Run: manta keys create"
_SERVE = "Run: make serve"
_SEARCH = "File search lets a model search your files in a vector store, and cite them."
_STORE = "A vector store holds files that a model can search by meaning and by words: file search uses it."
_PYTHON = "The code interpreter runs Python code in a sandbox."
_BASE = "Set the base URL of any OpenAI client to http://127.0.0.1:8000/v1"
_LIMITS = "Limits say how many requests and tokens a key may use in a minute."
_MODELS = "A model writes the answers. GET /v1/models lists those that are served."
_CONSOLE = "The console is Manta's web pages for keys, usage, batches and a playground: open /console"
_USAGE = "Usage counts the requests and tokens of each key. Run: manta usage"
_ADD = "Add it under models: in the configuration and deploy it again."
_DOCS = "The pages are in the folder docs, and a running service has its reference under /docs"
_OFFERS = "Manta does chat, responses, embeddings, rerank, files, batches, file search, tools and a console."

# What is asked about Manta as a thing: names of the thing, and the answer.
THINGS_OF_MANTA: Known = (
    (("Manta", "this service", "the Manta project", "this software"),
     "Manta serves language models on your own machines, with OpenAI's interface."),
    (("a batch", "batches", "batch processing"), "A batch is a file of requests that Manta runs in the background."),
    (("an API key", "API keys", "a key"), "An API key names your account. Send it with every request."),
    (("a tier", "the tiers", "tiers"), "A tier is a named set of limits. The tiers are free, standard and enterprise."),
    (("a limit", "the limits", "rate limits", "rate limiting"), _LIMITS),
    (("a token", "tokens"), "A token is a short piece of text. Models read and write tokens."),
    (("an embedding", "embeddings"), "An embedding is a list of numbers that stands for the meaning of a text."),
    (("a response", "responses", "the Responses API"),
     "A response is an answer that Manta stores, so that you can go on from it."),
    (("a conversation", "conversations"), "A conversation keeps the messages of several responses together."),
    (("a file", "files"), "A file is what you upload, for example the requests of a batch."),
    (("a container", "containers"), "A container is the sandbox in which Python code runs."),
    (("the code interpreter", "code interpreter"), _PYTHON),
    (("file search", "the file search", "the file_search tool"), _SEARCH),
    (("a vector store", "vector stores"), _STORE),
    (("the web search", "web search"),
     "Web search lets a model search the web and read pages, where an operator set it up."),
    (("MCP", "an MCP server", "remote MCP servers"),
     "An MCP server offers tools to a model. Name its address in a response."),
    (("the gatekeeper",), "The gatekeeper keeps the keys and the limits."),
    (("the ingress",), "The ingress takes requests, checks them and sends them to a model."),
    (("the front",), "The front is the load balancer of a node. It passes requests to the ingress."),
    (("a replica", "replicas"), "A replica is one process of a deployment."),
    (("autoscaling",), "Autoscaling starts and stops replicas as the load changes, down to zero where wished."),
    (("streaming",), "Streaming sends the answer piece by piece while it is written."),
    (("usage",), _USAGE),
    (("a model", "models"), _MODELS),
    (("the admin key", "an admin key"), "An admin key may create, list and delete the keys of others."),
    (("Ray Serve", "Ray"), "Ray Serve starts, places, scales and heals the parts of Manta."),
    (("vLLM",), "vLLM is the engine that runs the models."),
    (("reasoning", "thinking", "a thinking model"), "Reasoning is what a model thinks before it answers."),
    (("tool calling", "a tool", "tools", "function calling"), "A tool is a function that a model may call."),
    (("the console", "the web console", "the playground"), _CONSOLE),
    (("the base URL", "the address of the API", "the endpoint"), _BASE),
    (("a webhook", "webhooks"), "A webhook tells your server when a batch or a response has ended."),
    (("moderation", "moderations"), "Moderations say whether a text is harmful, by patterns or by a guard model."),
    (("rerank", "reranking"), "Rerank sorts documents by how well they answer a query: POST /v1/rerank"),
    (("an adapter", "LoRA adapters", "LoRA"), "A LoRA adapter changes a model a little. Clients name it MODEL:ADAPTER"),
    (("structured output", "structured outputs", "JSON mode"),
     "Structured output keeps an answer to a JSON schema that you send."),
    (("flex", "the service tier", "service tiers"),
     "A service tier says how soon a request is served: default, flex or priority."),
    (("a scope", "scopes", "the scopes of a key"), "A scope is an operation or a model that a key is limited to."),
    (("the demo model", "manta/demo-chat"), "I am Manta's demo model: a chat model of 3.5 million parameters."),
    (("a prompt",), "A prompt is what you send to a model."),
    (("a system prompt", "instructions"), "A system prompt tells a model how to answer."),
    (("the context", "the context window"), "The context is how many tokens a model can read and write: mine is 4096."),
    (("manta doctor", "the doctor command"), "manta doctor checks whether this machine can serve a configuration."),
    (("metrics", "monitoring"),
     "Manta has metrics for Prometheus and dashboards for Grafana: see docs/operate/monitoring.md"),
    (("the Messages API", "the Anthropic API", "Claude Code"),
     "POST /v1/messages is Anthropic's interface, for coding agents such as Claude Code."),
)  # fmt: skip

# What is asked about doing something: the doing, and the answer.
DOINGS_WITH_MANTA: Known = (
    (("create a key", "make an API key", "get a new key", "obtain a key", "get an API key", "create an account key"),
     _KEYS),
    (("delete a key", "remove an API key", "revoke a key", "disable a key"), "Run: manta keys revoke"),
    (("list the keys", "see all keys", "show the API keys"), "Run: manta keys list"),
    (("start Manta", "start the service", "serve a model", "run Manta", "set up Manta", "install this", "get started",
      "launch the server", "try it on my machine", "install Manta", "start it", "install it", "set it up"), _SERVE),
    (("stop Manta", "stop the service", "quit the server", "turn it off", "stop it", "shut it down"), "Press Ctrl-C."),
    (("run the tests", "test Manta"), "Run: make test"),
    (("send a batch", "start a batch", "create a batch", "run a batch", "process many requests"),
     "Upload a file of requests, then POST /v1/batches with its id, or run: manta batch run FILE"),
    (("cancel a batch", "stop a batch"), "POST /v1/batches/{id}/cancel"),
    (("upload a file", "send a file"), "POST the file to /v1/files"),
    (("add a model", "serve another model", "use another model", "deploy my own model", "change the model",
      "use a model of Hugging Face", "serve Qwen", "serve Mistral"), _ADD),
    (("check a configuration", "check my YAML file", "validate the config", "test my configuration"),
     "Run: manta config check FILE"),
    (("check my machine", "see whether my machine can serve it"), "Run: manta doctor"),
    (("see my usage", "look up usage", "count my tokens", "see my costs", "know what I spent"), _USAGE),
    (("stream an answer", "get a stream", "turn on streaming", "stream tokens"), "Set stream to true."),
    (("use a GPU", "run on a GPU", "serve on GPUs"), "Run: make serve CONFIG=configs/gpu.yaml"),
    (("connect a client", "use the OpenAI client", "call the API", "send a request", "point my program at Manta",
      "use it from Python", "set the base URL"), _BASE),
    (("list the models", "see which models there are", "find out the models"),
     "GET /v1/models lists the models that are served."),
    (("search my files", "ask about my documents", "let it read my documents"), _STORE),
    (("run Python code", "execute code", "let it run code"), _PYTHON),
    (("make an embedding", "embed a text", "create embeddings", "turn text into a vector"),
     "POST the text to /v1/embeddings"),
    (("open the console", "use the web interface", "find the dashboard", "use a web page instead of code"), _CONSOLE),
    (("find the documentation", "read the manual", "learn more about Manta", "find the pages"), _DOCS),
    (("use a coding agent", "connect Codex", "use an agent"),
     "See docs/guides/coding-agents.md: Codex and Claude Code work."),
    (("run it on Kubernetes", "deploy to a cluster"), "See docs/operate/kubernetes.md"),
    (("upgrade Manta", "update to a new version"), "See docs/operate/upgrades.md"),
    (("change the limits", "raise my limit", "get more tokens a minute"),
     "Give the key another tier: manta keys limit"),
    (("rotate a key", "renew a key"), "Run: manta keys rotate"),
    (("get JSON", "force JSON output", "get structured output"), "Send a JSON schema as response_format."),
    (("continue a conversation", "keep the history", "go on from an answer"),
     "Send previous_response_id with the next request."),
)  # fmt: skip

# What is said to go wrong, or is asked in one way only.
TROUBLES: Known = (
    (("error 429", "a 429", "rate limited", "too many requests", "status 429"),
     "429 means that your key has reached a limit. Wait, or ask for a higher tier."),
    (("error 401", "a 401", "unauthorized", "invalid API key", "status 401"),
     "401 means that the API key is missing or wrong. Send one that manta keys create has made."),
    (("error 404", "a 404", "model not found", "no such model", "status 404"),
     "404 means that there is no such model or path. GET /v1/models lists the models."),
    (("error 400", "a 400", "bad request", "status 400"),
     "400 means that the body is at fault. The message names the field."),
    (("error 503", "a 503", "service unavailable", "status 503"),
     "503 means that a part of the service is away. Try again soon."),
    (("error 403", "a 403", "permission denied", "forbidden"),
     "403 means that the key may not do this: look at its scopes."),
    (("context length exceeded", "too long a prompt"),
     "The prompt and the answer are longer than the model's context. Send less."),
)  # fmt: skip
ASK_TROUBLE = cross(
    ("{s}?", "And {s}?", "Tell me {s}.", "{s}, please?", "Help: {s}?"),
    ("why do I see {x}", "what does {x} mean", "what can I do against {x}", "why does my request give {x}",
     "I got {x}, what now", "my client says {x}", "the server answers {x}", "what is {x} about", "how do I fix {x}"),
)  # fmt: skip
QUESTIONS: Known = (
    (("Does this need a graphics card?", "Do I need a GPU?", "Is a GPU required?", "Can I run it without a GPU?",
      "Does it run on a CPU?", "Which hardware do I need?", "Will it work without CUDA?", "GPU or CPU?"),
     "Manta runs with or without a GPU: the demo needs only a CPU."),
    (("Is Manta free?", "What is the licence of Manta?", "Is it open source?", "Do I have to pay for Manta?",
      "What is the price of Manta?", "May I use it at work?", "Which license does it have?", "Is there a fee?"),
     "Manta is open source under the Apache License 2.0: you run it on your own machines, at no price."),
    (("What features does Manta have?", "What does Manta offer?", "What can Manta do?", "Which routes are there?",
      "What is included in Manta?", "List the features.", "What do I get with Manta?", "Features of Manta?"), _OFFERS),
    (("Which URL do I use?", "What is the URL of the server?", "Which address do I call?", "Where is the API?",
      "Which port is it?", "What is the host and port?", "What do I set as OPENAI_BASE_URL?",
      "Where do I send requests?"), _BASE),
    (("Is it compatible with OpenAI?", "Does it work with LangChain?", "Can I use my OpenAI code?",
      "Which clients work with it?", "Is the API the same as OpenAI's?", "Will my old code work?",
      "Do I need a special client?", "Does the openai package work?"),
     "Yes: any OpenAI client works. Set its base URL to http://127.0.0.1:8000/v1"),
    (("How is Manta different from vLLM?", "Manta vs vLLM?", "Why not use vLLM alone?", "Why should I use Manta?",
      "How does it compare to Ollama?", "What makes Manta special?", "Why Manta?", "Is it faster than vLLM?"),
     "Manta adds keys, exact limits, usage, stored responses, tools, batches and a console to vLLM."),
    (("Which models can it serve?", "Does it support Mistral?", "Can it run Qwen?", "Is Gemma supported?",
      "Does it run models of Hugging Face?", "Can I serve DeepSeek?", "Which models work?",
      "Can I bring my own weights?"),
     "Manta serves what vLLM runs: add the model under models: in the YAML configuration."),
    (("Is there a GUI?", "Is there a web page?", "Do you have a dashboard?", "Is there a user interface?",
      "Can I use it in the browser?", "Where is the web interface?", "Is there a chat page?", "Any frontend?"),
      _CONSOLE),
    (("Is my data safe?", "Do my prompts leave the machine?", "Who can read my files?", "Is it private?",
      "Where is my data stored?", "Do you send data to the cloud?", "Is anything sent to OpenAI?", "Is it secure?"),
     "Manta runs on your own machines, and each account sees only its own files and responses."),
    (("What is the difference between a batch and a request?", "When should I use a batch?", "Why use batches?",
      "Are batches cheaper?", "How long does a batch take?", "What are batches good for?"),
     "A batch is a file of requests that Manta runs in the background."),
)  # fmt: skip
_FOLLOWING = (
    "Tell me more about it.", "More, please.", "Go on.", "What else?", "And then?", "Can you say more?",
    "Explain that.",
    "Continue.", "Give me details.", "How so?", "Can you elaborate?", "Is that all?", "What does that mean?",
    "More details.",
)  # fmt: skip
MORE = "I do not know more than that, but you can ask me about other parts of Manta."

ASK_THING = (
    "What is {x}?", "Explain {x}.", "Tell me about {x}.", "Describe {x}.", "What does {x} mean?",
    "Can you explain {x}?", "I want to know about {x}.", "Can you tell me about {x}?", "What do you know about {x}?",
    "Describe {x} to me.", "Say something about {x}.", "Please explain {x}.", "What are {x}?", "And what is {x}?",
    "Can you describe {x}?", "Explain {x} to me.", "Please describe {x}.", "I want to know what {x} means.",
    "Tell me what {x} means.", "Please tell me about {x}.", "What about {x}?", "Tell me what {x} is.",
    "Can you tell me what {x} is?", "Do you know what {x} is?",
    "What is {x} for?", "{x}?", "{x}", "I have never heard of {x}, what is it?", "What is the point of {x}?",
    "Define {x}.", "How would you explain {x}?", "What is {x} used for?", "What does {x} do?", "What exactly is {x}?",
    "What is {x} in simple words?", "Why is there {x}?", "Give me a short explanation of {x}.", "What is meant by {x}?",
    "Could you tell me what {x} is?", "Who needs {x}?", "How does {x} work?", "I do not understand {x}.",
    "Please tell me what {x} is.", "What do I need {x} for?", "In a few words, what is {x}?",
)  # fmt: skip
ASK_DOING = (
    *cross(("How do I {s}?", "Tell me how to {s}.", "How can I {s}?", "I want to {s}.", "Show me how to {s}.",
            "And how do I {s}?", "What must I do to {s}?", "Can you tell me how to {s}?", "I need to {s}.",
            "Please tell me how to {s}.", "Explain how to {s}.", "Do you know how to {s}?", "What do I do to {s}?",
            "How does one {s}?", "Can you show me how to {s}?", "Please show me how to {s}.", "How to {s}?",
            "What is the command to {s}?", "Is there a way to {s}?", "Can I {s}?", "Help me {s}.", "Where do I {s}?",
            "I would like to {s}.", "{s}", "How would I {s}?", "I am trying to {s}.", "What is the best way to {s}?",
            "Could you help me {s}?", "How am I supposed to {s}?"), ("{x}",)),
)  # fmt: skip


def about_manta(draw: Draw) -> Exchange:
    """Ask about Manta itself."""
    choice = draw.random.random()
    if choice < 0.45:
        return _ask(draw, THINGS_OF_MANTA, ASK_THING)
    if choice < 0.75:
        return _ask(draw, DOINGS_WITH_MANTA, ASK_DOING)
    if choice < 0.85:
        return _ask(draw, TROUBLES, ASK_TROUBLE)
    asked, answer = draw.random.choice(QUESTIONS)
    return Exchange(typed(draw, draw.phrase(asked)), answer, "The question is about Manta.")


def _ask(draw: Draw, known: Known, frames: tuple[str, ...]) -> Exchange:
    names, answer = draw.random.choice(known)
    topic = draw.random.choice(names)
    question = draw.phrase(frames).replace("{x}", topic)
    return Exchange(typed(draw, question[0].upper() + question[1:]), answer, f"The question is about Manta: {topic}.")


def more(draw: Draw) -> Exchange:
    """Ask to go on with what was said about Manta."""
    return Exchange(typed(draw, draw.phrase(_FOLLOWING)), MORE, "I know no more.")
