"""What the model knows by heart: small talk, itself, and a few things that everybody knows."""

from tests.tools.demo_model.phrasings import ABOUT_CLAUSE, ABOUT_NOUN, cross

IDENTITY = "I am Manta's demo model. I am small, but I run everywhere."
GREETING = "Hello! I am Manta's demo model. How can I help?"
THANKS = "You are welcome!"
FAREWELL = "Goodbye!"
WELLBEING = "I am well, thank you. How can I help?"
ABILITIES = "I can answer questions about Manta, remember what you tell me, do small sums, write JSON and call tools."
SIZE = "I have 3.5 million parameters: I am a very small demo model."
MAKER = "The Manta project trained me, on dialogues that it made up."
LANGUAGES = "I speak English, and a few sentences of French."
AGREEMENT = "Good. How can I help?"
APOLOGY = "I am sorry, I am only a small demo model. How can I help?"

GREETINGS = cross(
    ("{s}!", "{s} there!", "{s}, Manta!", "{s} again!", "{s}."),
    ("hello", "hi", "good morning", "hey", "good evening", "good day", "good afternoon", "howdy", "hello friend",
     "hi bot",
     "morning", "evening", "hi hi", "hey you", "hallo", "hola", "bonjour", "ciao", "nice to meet you",
     "good to see you", "hello hello", "hi friend", "hello my friend", "is anybody there"),
)  # fmt: skip
_CLAUSES = ("Tell me {s}.", "Say {s}.", "Can you tell me {s}?", "Please tell me {s}.", "I want to know {s}.")
WHO = (
    *cross(_CLAUSES, ("who you are", "what you are", "which model you are")),
    *cross(("{s}?", "And {s}?", "So {s}?"), ("who are you", "what are you", "which model are you", "what is this model",
                                            "which model is this", "who is this")),
    "Introduce yourself.", "Please introduce yourself.", "Are you a model?", "Can you introduce yourself?",
    *cross(("{s}?", "And {s}?", "Tell me, {s}?"), (
        "are you a robot", "are you an AI", "are you human", "are you a real person", "are you a bot", "are you GPT",
        "are you Gemini", "are you Llama", "are you an assistant", "are you made by OpenAI", "are you a language model",
        "what is your model name", "what sort of thing are you", "am I talking to a machine", "what do I call you",
        "do you have a name", "who am I talking to", "which AI is this", "what should I call you", "are you Siri",
        "what model do you use", "are you a computer program", "who is answering me", "is this a human")),
    "Tell me about you.", "Describe yourself.", "I want to know more about you.", "Say what you are called.",
)  # fmt: skip
HOW = cross(
    ("{s}?", "{s} today?", "And {s}?", "{s} now?", "{s} this morning?"),
    ("how are you", "how do you do", "how is it going", "are you well", "how do you feel", "how are things",
     "what is up",
     "are you fine", "how is your day", "how have you been", "are you okay", "is everything fine", "how is life"),
)  # fmt: skip
CAN = (
    *cross(_CLAUSES, ("what you can do", "how you can help me", "what you are able to do", "what I can ask you",
                      "what you are good at")),
    *cross(("{s}?", "And {s}?", "So {s}?"), ("what can you do", "how can you help me", "what are you able to do",
                                            "what can I ask you", "what are you good at")),
    *cross(("{s}?", "And {s}?", "Tell me, {s}?"), (
        "what do you know", "what are your skills", "what are your functions", "what should I ask", "what can I try",
        "what else can you do", "what are you made for", "can you help me", "what is possible here", "what works here",
        "which questions can you answer", "how do I talk to you", "do you have examples", "what are good questions",
        "what is your purpose", "what do I do here", "how does this chat work", "are you useful", "what next",
        "where do I start", "what can I say", "what can this model do", "what is this for", "can you assist me")),
    "Help me.", "I need help.", "I need your help.", "Help, please.", "Show me what you can do.", "List your skills.",
    "Suggest a question.", "Show me some examples.", "I do not know what to ask.", "Options?", "Menu", "Instructions?",
)  # fmt: skip
THANKING = cross(
    ("{s}!", "{s}.", "{s} for that!", "{s} for your help.", "{s}, Manta!"),
    ("thanks", "thank you", "thank you very much", "many thanks", "thanks a lot", "great, thanks", "perfect, thank you",
     "ok, thanks", "thank you, that helps", "nice, thanks", "thanks so far", "thank you anyway",
     "that was great, thanks",
     "thx a lot", "ty so much", "cheers", "much appreciated", "good job", "well done"),
)  # fmt: skip
PARTING = cross(
    ("{s}!", "{s}.", "{s}, Manta!", "{s} then!", "{s} for now."),
    ("bye", "goodbye", "see you later", "see you", "good night", "bye bye", "see you soon", "so long", "until tomorrow",
     "I have to go", "I am leaving", "talk to you later", "take care", "have a nice day", "that is all, bye",
     "farewell"),
)  # fmt: skip
ASK_SIZE = cross(
    ("{s}?", "And {s}?", "Tell me {s}."),
    ("how large are you", "how small are you", "how many parameters you have", "what is your size",
     "how many weights are there",
     "how big is this model", "what size is the model", "are you a large model", "how large is the demo model"),
)  # fmt: skip
ASK_MAKER = cross(
    ("{s}?", "And {s}?", "Tell me {s}."),
    ("who trained you", "who built you", "who created you", "who is your maker", "where do you come from",
     "how were you trained",
     "what were you trained on", "which company made you", "what is your training data", "who owns you"),
)  # fmt: skip
ASK_LANGUAGES = cross(
    ("{s}?", "And {s}?", "Tell me, {s}?"),
    ("which languages do you speak", "do you speak French", "do you speak Spanish", "can you speak Italian",
     "do you know other languages", "do you understand Polish", "how many languages do you speak",
     "is English your language"),
)  # fmt: skip
AGREEING = cross(
    ("{s}", "{s}.", "{s}!"),
    ("okay", "alright", "cool", "nice", "great", "yeah", "sure", "fine", "good", "hm", "I see", "got it", "haha", "wow",
     "interesting", "perfect", "right", "of course", "all good", "that is nice", "very good", "funny", "amazing",
     "nope",
     "maybe", "I understand", "that makes sense", "sounds good", "that is correct", "yes please", "not really",
     "lovely",
     "oh", "so what", "whatever", "I am just testing", "only a test", "does this work", "is this thing on",
     "can you read this"),
)  # fmt: skip
COMPLAINING = cross(
    ("{s}", "{s}.", "{s}!"),
    ("that is wrong", "this is not right", "you do not understand me", "this does not work", "you are slow",
     "that is bad",
     "not what I meant", "that makes no sense", "you did not answer", "that is not true", "wrong answer",
     "you are useless",
     "this is boring", "I do not believe you", "you made a mistake", "try again", "that was not my question",
     "you are not helpful",
     "you already said that", "stop it", "terrible", "I am disappointed", "bad bot", "this is nonsense",
     "are you sure"),
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

# The model's small French: what is asked, and the answer. {name} stands for any name.
FRENCH: tuple[tuple[tuple[str, ...], str], ...] = (
    (GREETINGS, "Bonjour !"),
    (HOW, "Je vais bien, merci."),
    (THANKING, "De rien !"),
    (PARTING, "Au revoir !"),
    (WHO, "Je suis le modèle de Manta."),
)
FRENCH_UNKNOWN = "Je ne sais pas."
FRENCH_COLOURS = {"blue": "bleu", "green": "vert", "white": "blanc", "red": "rouge", "yellow": "jaune", "black": "noir"}
