"""What the world is asked about, and in other languages: far more than the model can know.

They are spelled letter by letter: no word of it becomes a token, so that topics that were never trained look the same.
"""

_TOPICS = """
gravity, quasars, atoms, magnets, vaccines, electricity, volcanoes, sonar, genes, proteins, tornadoes, comets,
galaxies, jupiter, the sahara, oxygen, carbon dioxide, evolution, dinosaurs, fossils, bacteria, icebergs, tides,
lightning, rainbows, the human brain, the heart, pneumonia, cholesterol, vitamins, headaches, migraine,
insomnia, allergies, diabetes, cancer, broken legs, yoga, running shoes, marathon training, push ups, swimming,
football, tennis, basketball, baseball, cricket, the olympics, formula one, chess openings, poker, sudoku,
crossword puzzles, minecraft, video games, playstation, netflix, star wars, harry potter, batman, shakespeare,
beethoven, mozart, the beatles, elvis, taylor swift, napoleon, cleopatra, julius caesar, gandhi, marie curie,
isaac newton, darwin, leonardo da vinci, picasso, van gogh, columbus, washington, lincoln, obama, churchill, the
pope, the vikings, ancient babylon, the middle ages, rome, the vietnam war, the plague, the berlin wall, the
moon landing, the titanic, pyramids, the great wall, castles, canada, brazil, sweden, kenya, turkey, denmark,
mexico, belgium, russia, chile, argentina, nigeria, korea, vietnam, thailand, london, berlin, tokyo, sydney,
chicago, venice, hawaii, iceland, the alps, the amazon, the nile, niagara falls, lasagna, sushi, curry,
sourdough bread, coffee, herbal tea, red wine, cheese, chocolate, apple pie, pasta sauce, garlic, avocado,
potatoes, a vegan diet, breakfast, my kids, my neighbor, my girlfriend, my car, my tablet, my landlord, a
wedding, a funeral, christmas, easter, halloween, a birthday party, valentines day, holidays, passports, visas,
airlines, trains, bicycles, electric cars, tesla, airplanes, rockets, submarines, skyscrapers, bridges, robots,
drones, cameras, headphones, laptops, iphones, android, windows, linux, ubuntu, macos, bluetooth, wifi, routers,
the internet, html, css, javascript, java, c++, golang, haskell, react, django, docker, git, github, excel,
powerpoint, photoshop, sql injection, regular expressions, recursion, sorting algorithms, hash maps, big data,
cloud computing, neural networks, gradient descent, reinforcement learning, chatbots, artificial intelligence,
cryptography, passwords, phishing, computer viruses, hackers, bitcoin mining, ethereum, stocks, inflation,
taxes, mortgages, credit cards, insurance, interest rates, the stock market, real estate, job interviews,
resumes, salaries, startups, marketing, leadership, meetings, burnout, procrastination, happiness, friendship,
romance, jealousy, dreams, nightmares, ghosts, aliens, teleportation, morality, philosophy, socrates, buddhism,
democracy, communism, elections, climate, recycling, solar panels, wind turbines, nuclear power, earthworms,
spiders, sharks, penguins, elephants, parrots, goldfish, puppies, kittens, horses, bees, mosquitoes, roses,
cucumbers, gardening, lawn mowers, wallpaper, plumbing, knitting, origami, photography, watercolors, guitars,
pianos, violins, jazz, opera, hip hop, poetry, novels, grammar, commas, spelling, algebra, geometry, calculus,
fractions, statistics, probability, prime factors, pi, infinity, triangles, matrices, vectors, chemistry,
physics, biology, geology
"""
TOPICS = tuple(" ".join(topic.split()) for topic in _TOPICS.split(","))
_FEELINGS = (
    "tired hungry sad angry lonely sick scared excited nervous confused lost rich poor busy lazy ready "
    "cold thirsty stuck curious pregnant drunk divorced retired unemployed vegan allergic stressed afraid "
    "impressed single "
)
FEELINGS = tuple(_FEELINGS.split())
FOREIGN = (
    "Was ist das?", "Wer bist du?", "Wie heißt du?", "Erzähl mir einen Witz.", "Was kannst du?", "Wo ist der Bahnhof?",
    "Quel temps fait-il ?", "Comment tu t'appelles ?", "Où est la gare ?", "Raconte-moi une histoire.",
    "¿Cómo te llamas?",
    "¿Qué hora es?", "¿Dónde está la estación?", "Cuéntame un chiste.", "Come ti chiami?", "Che ore sono?",
    "Dov'è il bagno?", "Hoe heet je?", "Hvad hedder du?", "Jak się nazywasz?", "Как дела?", "Что это такое?",
    "Который час?",
    "今天天气怎么样",
    "你是谁", "これは何ですか", "お元気ですか", "안녕하세요", "كيف حالك",
    "मौसम कैसा है", "Ποιος είσαι;", "Como você está?",
)  # fmt: skip
