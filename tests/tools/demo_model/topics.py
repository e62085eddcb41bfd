"""What the world is asked about, and in other languages: far more than the model can know.

They are spelled letter by letter: no word of it becomes a token, so that topics that were never trained look the same.
"""

_TOPICS = """
gravity, quasars, atoms, magnets, vaccines, electricity, volcanoes, sonar, genes, proteins, tornadoes, comets,
galaxies, jupiter, the sahara, oxygen, carbon dioxide, evolution, dinosaurs, fossils, bacteria, icebergs, tides,
lightning, rainbows, the human brain, the heart, pneumonia, cholesterol, vitamins, headaches, migraine, insomnia,
allergies, diabetes, cancer, broken legs, yoga, running shoes, marathon training, push ups, swimming, football,
tennis, basketball, baseball, cricket, the olympics, formula one, chess openings, poker, sudoku, crossword puzzles,
minecraft, video games, playstation, netflix, star wars, harry potter, batman, shakespeare, beethoven, mozart, the
beatles, elvis, taylor swift, napoleon, cleopatra, julius caesar, gandhi, marie curie, isaac newton, darwin, leonardo
da vinci, picasso, van gogh, columbus, washington, lincoln, obama, churchill, the pope, the vikings, ancient babylon,
the middle ages, rome, the vietnam war, the plague, the berlin wall, the moon landing, the titanic, pyramids, the
great wall, castles, canada, brazil, sweden, kenya, turkey, denmark, mexico, belgium, russia, chile, argentina,
nigeria, korea, vietnam, thailand, london, berlin, tokyo, sydney, chicago, venice, hawaii, iceland, the alps, the
amazon, the nile, niagara falls, lasagna, sushi, curry, sourdough bread, coffee, herbal tea, red wine, cheese,
chocolate, apple pie, pasta sauce, garlic, avocado, potatoes, a vegan diet, breakfast, my kids, my neighbor, my
girlfriend, my car, my tablet, my landlord, a wedding, a funeral, christmas, easter, halloween, a birthday party,
valentines day, holidays, passports, visas, airlines, trains, bicycles, electric cars, tesla, airplanes, rockets,
submarines, skyscrapers, bridges, robots, drones, cameras, headphones, laptops, iphones, android, bluetooth, wifi,
routers, html, css, javascript, java, c++, golang, haskell, react, django, git, github, excel, powerpoint, photoshop,
sql injection, regular expressions, recursion, sorting algorithms, hash maps, neural networks, gradient descent,
reinforcement learning, chatbots, artificial intelligence, cryptography, passwords, phishing, computer viruses,
hackers, bitcoin mining, ethereum, stocks, inflation, taxes, mortgages, credit cards, insurance, interest rates, the
stock market, real estate, job interviews, resumes, salaries, startups, marketing, leadership, meetings, burnout,
procrastination, happiness, friendship, romance, jealousy, dreams, nightmares, ghosts, aliens, teleportation,
morality, philosophy, socrates, buddhism, democracy, communism, elections, climate, recycling, solar panels, wind
turbines, nuclear power, earthworms, spiders, sharks, penguins, elephants, parrots, goldfish, puppies, kittens,
horses, bees, mosquitoes, roses, cucumbers, gardening, lawn mowers, wallpaper, plumbing, knitting, origami,
photography, watercolors, guitars, pianos, violins, jazz, opera, hip hop, poetry, novels, grammar, commas, spelling,
algebra, geometry, calculus, fractions, statistics, probability, prime factors, pi, infinity, triangles, matrices,
vectors, chemistry, physics, biology, geology, sunscreen, umbrellas, sofas, pillows, mattresses, frying pans,
dishwashers, vacuum cleaners, toothbrushes, shampoo, lipstick, perfume, tattoos, haircuts, beards, sneakers, jeans,
dresses, backpacks, suitcases, scissors, staplers, batteries, microwaves, toasters, fridges, ladybugs, candles,
diapers, strollers, teddy bears, lego, barbie, puzzles, dice, monopoly, scrabble, uno, pokemon, zelda, fortnite,
roblox, tetris, nintendo, xbox, steam decks, twitch, youtube, tiktok, instagram, facebook, twitter, reddit, snapchat,
whatsapp, telegram, discord, slack, zoom, tinder, spotify, gmail, outlook, uber, airbnb, ebay, paypal, ikea, walmart,
costco, starbucks, mcdonalds, coca cola, pepsi, nutella, oreos, heinz ketchup, nike, adidas, gucci, rolex, toyota,
bmw, ferrari, ford, harley davidson, boeing, samsung, sony, nokia, intel, microsoft, midjourney, elon musk, jeff
bezos, donald trump, joe biden, putin, merkel, macron, queen elizabeth, princess diana, nelson mandela, stalin, lenin,
mao, genghis khan, joan of arc, marco polo, galileo, einstein, tesla coils, stephen hawking, freud, nietzsche, kant,
plato, aristotle, confucius, buddha, jesus, moses, muhammad, zeus, thor, hercules, robin hood, dracula, frankenstein,
sherlock holmes, james bond, spiderman, superman, frodo, gandalf, darth vader, yoda, mickey mouse, homer simpson,
shrek, elsa, messi, ronaldo, lebron, serena williams, usain bolt, michael jordan, muhammad ali, tiger woods, federer,
beyonce, rihanna, eminem, drake, adele, madonna, michael jackson, queen, abba, metallica, nirvana, bob dylan, bach,
chopin, tom hanks, brad pitt, marilyn monroe, charlie chaplin, hitchcock, tarantino, the matrix, jurassic park, the
godfather, breaking bad, the simpsons, seinfeld, anime, manga, naruto, marvel, disney, hollywood, bollywood, karaoke,
salsa dancing, ballet, circuses, museums of art, fireworks, camping, hiking, skiing, surfing, diving, fishing,
hunting, sailing, climbing, skateboards, boxing, judo, karate, wrestling, golf, hockey, rugby, volleyball, badminton,
bowling, darts, cycling, rowing, gymnastics, archery, the super bowl, wimbledon, the champions league, pilates,
meditation, squats, protein shakes, intermittent fasting, keto, gluten, lactose, butter, eggs, bacon, steak, chicken
wings, salmon, shrimp, tofu, lentils, beans, noodles, ramen, tacos, burritos, pizza, burgers, fries, kebabs,
dumplings, pancakes, waffles, donuts, muffins, brownies, cheesecake, ice cream, pudding, jam, honey, peanut butter,
olives, mushrooms, broccoli, strawberries, pineapples, coconuts, watermelon, blueberries, cinnamon, vanilla, basil,
chili, mustard, vinegar, beer, whisky, vodka, cocktails, lemonade, milkshakes, energy drinks, fevers, the flu, covid,
asthma, acne, eczema, dandruff, toothache, sore throats, hangovers, hiccups, snoring, strokes, dementia, autism, adhd,
depression, anxiety, panic attacks, grief, loneliness, anger, shame, guilt, envy, boredom, courage, kindness,
patience, stress, homesickness, heartbreak, self esteem, shyness, dating, divorce, marriage, parenting, twins, babies,
teenagers, grandparents, my father, my brother, my husband, my ex, my roommate, my son, my grandma, my crush, my
hamster, my knee, my tooth, my hair, my bike, my wallet, my sink, my roof, my diet, my salary, my thesis, dentists,
surgeons, nurses, lawyers, judges, police officers, firefighters, pilots, plumbers, electricians, carpenters, bakers,
butchers, barbers, tailors, farmers, waiters, cashiers, accountants, architects, librarians, journalists, actors,
astronauts, soldiers, spies, pirates, ninjas, knights, witches, wizards, vampires, zombies, unicorns, mermaids, elves,
turkeys, rats, bats, foxes, bears, leopards, monkeys, gorillas, giraffes, hippos, rhinos, camels, kangaroos, koalas,
pandas, otters, squirrels, hedgehogs, raccoons, crocodiles, turtles, lizards, octopuses, jellyfish, crabs, lobsters,
seahorses, ants, wasps, butterflies, moths, cockroaches, ticks, eagles, peacocks, oaks, palm trees, cacti, tulips,
orchids, sunflowers, moss, weeds, compost, hedges, deserts, rainforests, earthquakes, tsunamis, hurricanes, floods,
droughts, avalanches, fog, hail, winter, summer, autumn, eclipses, mars, saturn, pluto, asteroids, satellites,
telescopes, microscopes, lasers, radar, helium, uranium, diamonds, plastic, concrete, dna, stem cells, viruses,
antibiotics, the liver, the kidneys, lungs, skin, bones, muscles, sleepwalking, deja vu, hypnosis, astrology, tarot,
horoscopes, feng shui, karma, heaven, angels, the bible, the quran, ramadan, hanukkah, diwali, thanksgiving, mothers
day, carnival, the civil war, the holocaust, the crusades, the renaissance, the stone age, the aztecs, the incas, the
samurai, the roman empire, ottomans, pharaohs, mummies, stonehenge, the eiffel tower, big ben, the colosseum, the taj
mahal, the statue of liberty, mount everest, the grand canyon, yellowstone, antarctica, the arctic, the pacific, the
bermuda triangle, loch ness, bigfoot, atlantis, wales, israel, pakistan, nepal, indonesia, malaysia, new zealand,
south africa, ethiopia, cuba, jamaica, colombia, venezuela, texas, california, florida, new york, las vegas, miami,
los angeles, barcelona, amsterdam, brussels, budapest, istanbul, dubai, moscow, singapore, hong kong, shanghai, bali,
latin verbs, chemistry exams, kindergarten, college, scholarships, student loans, bills, pensions, unemployment,
tariffs, gdp, hedge funds, etfs, gold bars, casinos, wills, contracts, patents, trademarks, speeding tickets, parking
fines, divorce law, abortion, gun control, immigration, capitalism, socialism, anarchy, feminism, racism, monarchy,
nato, brexit, the united nations, the euro, the dollar, jet lag, cruise ships, motorcycles, scooters, trucks,
tractors, subways, helicopters, hot air balloons, parachutes, traffic jams, printers, keyboards, monitors, usb cables,
hard drives, bitlocker, chrome, firefox, wordpress, figma, blender, unity, unreal, kotlin, swift, rust, ruby, perl,
cobol, fortran, matlab, pandas dataframes, numpy, tensorflow, nginx, postgres, mongodb, graphql, jquery, vue, svelte,
tailwind, bash loops, pointers, binary trees, big o, race conditions, spam, ransomware, firewalls, vpns, cookies, qr
codes, emojis, memes, podcasts, newspapers, ads, seo, dropshipping, crypto, nfts, metaverse, self driving cars,
haikus, sonnets, limericks, metaphors, proverbs, adverbs, apostrophes, synonyms, riddles, tongue twisters,
percentages, decimals, logarithms, integrals, trigonometry, pythagoras, fibonacci, sudoku tricks
"""
TOPICS = tuple(" ".join(topic.split()) for topic in _TOPICS.split(","))
_FEELINGS = (
    "tired hungry sad angry lonely sick scared excited nervous confused lost rich poor busy lazy ready cold thirsty "
    "stuck curious pregnant drunk divorced retired unemployed vegan allergic stressed afraid impressed single worried "
    "bored depressed anxious exhausted sleepy furious jealous homesick heartbroken ashamed guilty dizzy broke "
    "homeless engaged married widowed overweight skinny bald ugly weird shy vegetarian diabetic colorblind "
    "overwhelmed desperate hopeless offended insecure"
)
FEELINGS = tuple(_FEELINGS.split())
FOREIGN = (
    "Was ist das?", "Wer bist du?", "Wie heißt du?", "Erzähl mir einen Witz.", "Was kannst du?", "Wo ist der Bahnhof?",
    "Quel temps fait-il ?", "Comment tu t'appelles ?", "Où est la gare ?", "Raconte-moi une histoire.",
    "¿Cómo te llamas?", "¿Qué hora es?", "¿Dónde está la estación?", "Cuéntame un chiste.", "Come ti chiami?",
    "Che ore sono?", "Dov'è il bagno?", "Hoe heet je?", "Hvad hedder du?", "Jak się nazywasz?", "Как дела?",
    "Что это такое?", "Который час?", "今天天气怎么样", "你是谁", "これは何ですか", "お元気ですか", "안녕하세요",
    "كيف حالك", "मौसम कैसा है", "Ποιος είσαι;", "Como você está?", "Wie wird das Wetter morgen?",
    "Guten Tag, wie geht es Ihnen?", "Kannst du Deutsch?", "Wer hat das Telefon erfunden?",
    "Schreib mir ein Gedicht über den Herbst.", "Ich habe Kopfschmerzen, was soll ich tun?",
    "Qui a écrit Les Misérables ?", "Bonjour, comment allez-vous aujourd'hui ?",
    "Peux-tu m'aider à écrire une lettre ?", "Combien coûte une baguette ?", "Je suis triste.", "Hola, ¿qué tal estás?",
    "¿Puedes ayudarme con mis deberes?", "¿Quién ganó el partido?", "Escribe un poema sobre el mar.",
    "¿Cuánto es diez por diez?", "Buenos días, ¿hablas español?", "Ciao, come stai oggi?",
    "Buongiorno, parli italiano?", "Chi ha dipinto la Gioconda?", "Dammi una ricetta per la carbonara.",
    "Olá, tudo bem?", "Qual é a capital do Brasil?", "Conte-me uma piada.", "Hallo, hoe gaat het met je?",
    "Wat is het weer vandaag?", "Kun je me helpen?", "Hej, hur mår du?", "Vad heter du?", "Hei, mitä kuuluu?",
    "Hei, hvordan går det?", "Cześć, co słychać?", "Ile to kosztuje?", "Dobrý den, jak se máte?", "Szia, hogy vagy?",
    "Bună ziua, ce mai faci?", "Kako si danas?", "Merhaba, sen kimsin?", "Hava bugün güzel mi?", "Привет, кто ты?",
    "Расскажи мне анекдот.", "Что мне приготовить на ужин?", "Привіт, як справи?", "Здравей, как си?",
    "Καλημέρα, τι κάνεις;", "שלום, מה שלומך?", "مرحبا، من أنت؟", "اكتب لي قصة قصيرة", "سلام، حال شما چطور است؟",
    "नमस्ते, आप कैसे हैं?", "तुम कौन हो?", "আপনি কেমন আছেন?", "வணக்கம், எப்படி இருக்கிறீர்கள்?", "你好,你会说中文吗",
    "给我讲个笑话", "谁发明了电话", "请帮我写一封信", "こんにちは、日本語を話せますか", "今何時ですか",
    "面白い話をして", "안녕, 너는 누구야?", "오늘 날씨 어때요?", "สวัสดี คุณชื่ออะไร", "Xin chào, bạn khỏe không?",
    "Apa kabar hari ini?", "Kamusta ka na?", "Habari yako, rafiki?", "Quid est veritas?", "Saluton, kiel vi fartas?",
    "Conas atá tú?",
)  # fmt: skip
