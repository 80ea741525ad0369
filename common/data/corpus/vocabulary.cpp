#include "common/data/corpus/vocabulary.hpp"

namespace ladder {
namespace {

using Word = std::string_view;

constexpr Word kFirstNames[] = {"Anna",   "Bruno",  "Clara",   "David", "Elena",  "Felix", "Grace",
                                "Hugo",   "Ines",   "Jonas",   "Karin", "Louis",  "Maria", "Nils",
                                "Olga",   "Pedro",  "Quentin", "Rosa",  "Samuel", "Tara",  "Ulrich",
                                "Vera",   "Walter", "Xenia",   "Yusuf", "Zoe",    "Amir",  "Bela",
                                "Carlos", "Dora",   "Emil",    "Fatima"};
constexpr Word kLastNames[] = {"Adler",  "Berg",   "Costa", "Dahl",   "Evans",  "Fischer",
                               "Garcia", "Hansen", "Ito",   "Jansen", "Kovacs", "Larsen",
                               "Moreau", "Novak",  "Okoye", "Patel",  "Quinn",  "Rossi",
                               "Silva",  "Tanaka", "Urban", "Vogel",  "Weber",  "Zhang"};
constexpr Word kAdjectives[] = {"Silent",  "Golden", "Broken",   "Crimson", "Distant",
                                "Endless", "Frozen", "Gentle",   "Hidden",  "Iron",
                                "Lonely",  "Mighty", "Northern", "Painted", "Quiet",
                                "Rising",  "Secret", "Tender",   "Velvet",  "Winter"};
constexpr Word kNouns[] = {"Anchor", "Bridge", "Castle",  "Desert",  "Empire",  "Forest", "Garden",
                           "Harbor", "Island", "Journey", "Kingdom", "Lantern", "Mirror", "Night",
                           "Ocean",  "Planet", "River",   "Shadow",  "Tower",   "Valley"};
constexpr Word kCities[] = {"Athens",   "Berlin",  "Cairo",  "Dublin", "Geneva", "Hanoi",
                            "Istanbul", "Jakarta", "Kyoto",  "Lisbon", "Madrid", "Nairobi",
                            "Oslo",     "Paris",   "Quito",  "Rome",   "Seoul",  "Tokyo",
                            "Utrecht",  "Vienna",  "Warsaw", "Zurich", "Boston", "Denver"};
constexpr Word kCountries[] = {"Austria", "Brazil",  "Canada",  "Denmark", "Egypt",
                               "France",  "Germany", "Hungary", "India",   "Japan",
                               "Kenya",   "Latvia",  "Mexico",  "Norway",  "Poland",
                               "Spain",   "Turkey",  "Uruguay", "Vietnam", "Italy"};
constexpr Word kJobs[] = {"engineer", "clerk",  "manager", "analyst",
                          "designer", "driver", "nurse",   "lawyer"};
constexpr Word kColors[] = {"red", "blue", "green", "black", "white", "silver", "yellow", "brown"};
constexpr Word kGenres[] = {"drama",  "comedy",  "thriller", "western",
                            "horror", "romance", "history",  "fantasy"};
constexpr Word kMusic[] = {"jazz", "rock", "folk", "opera", "blues", "soul", "techno", "reggae"};
constexpr Word kMajors[] = {"physics", "history",   "biology",   "law",
                            "music",   "economics", "chemistry", "art"};
constexpr Word kLanguages[] = {"English", "French", "German",  "Spanish",
                               "Hindi",   "Arabic", "Swahili", "Polish"};
constexpr Word kStatus[] = {"open", "shipped", "paid", "cancelled", "returned", "delayed"};
constexpr Word kPositions[] = {"goalkeeper", "defender", "midfielder",
                               "striker",    "winger",   "captain"};
constexpr Word kMaterials[] = {"oak",     "steel",  "glass", "cotton",
                               "leather", "marble", "paper", "copper"};
constexpr Word kFuels[] = {"petrol", "diesel", "electric", "hybrid", "hydrogen"};
constexpr Word kLevels[] = {"basic", "medium", "advanced", "expert"};
constexpr Word kIllnesses[] = {"flu",     "asthma",  "migraine", "fracture",
                               "allergy", "measles", "anemia"};
constexpr Word kCuisines[] = {"thai",    "greek",  "indian",  "mexican",
                              "italian", "korean", "turkish", "vegan"};
constexpr Word kDays[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                          "Friday", "Saturday", "Sunday"};
constexpr Word kAirlines[] = {"Skyline",   "Aero Nova", "Blue Wing",
                              "Polar Air", "Sunjet",    "Condora"};

CorpusColumn person(Word name) {
  return {name, kFirstNames, kLastNames};
}
CorpusColumn title(Word name) {
  return {name, kAdjectives, kNouns};
}
CorpusColumn category(Word name, WordList words) {
  return {name, words, {}, 0, 0, 1, false, true};
}
CorpusColumn amount(Word name, std::int64_t low, std::int64_t high, std::int64_t step = 1) {
  return {name, {}, {}, low, high, step, true};
}
CorpusColumn year(Word name, std::int64_t low, std::int64_t high) {
  return {name, {}, {}, low, high};
}

std::vector<CorpusDomain> work_and_trade() {
  return {
      {{"employees",
        {person("name"), category("job", kJobs), category("city", kCities),
         amount("salary", 20000, 99000, 500), amount("age", 18, 66),
         year("hire_year", 1985, 2024)}},
       "in",
       {"departments",
        {title("title"), category("location", kCities), amount("budget", 10000, 900000, 5000),
         amount("floor", 1, 30), person("head")}},
       "department_id"},
      {{"orders",
        {category("status", kStatus), category("destination", kCities), amount("price", 5, 2000, 5),
         amount("quantity", 1, 60), year("order_year", 2005, 2025), category("weekday", kDays)}},
       "by",
       {"customers",
        {person("name"), category("country", kCountries), category("language", kLanguages),
         amount("credit", 100, 9000, 50), amount("age", 18, 90)}},
       "customer_id"},
      {{"products",
        {title("label"), category("color", kColors), category("material", kMaterials),
         amount("price", 1, 800), amount("weight", 10, 5000, 10), amount("stock", 0, 400)}},
       "from",
       {"suppliers",
        {person("contact"), category("country", kCountries), category("city", kCities),
         amount("rating", 1, 100), year("since", 1970, 2024)}},
       "supplier_id"},
      {{"cars",
        {title("model"), category("color", kColors), category("fuel", kFuels),
         amount("price", 4000, 90000, 250), amount("horsepower", 50, 600, 5),
         year("model_year", 1980, 2025)}},
       "from",
       {"makers",
        {title("brand"), category("country", kCountries), amount("revenue", 100, 9900, 10),
         year("founding_year", 1890, 2015), person("chairman")}},
       "maker_id"},
      {{"patients",
        {person("name"), category("illness", kIllnesses), category("city", kCities),
         amount("age", 1, 99), amount("weight", 30, 140), year("admission_year", 2000, 2025)}},
       "in",
       {"hospitals",
        {title("title"), category("city", kCities), category("country", kCountries),
         amount("beds", 20, 1500, 5), year("opening_year", 1900, 2020)}},
       "hospital_id"},
      {{"apartments",
        {category("city", kCities), person("owner"), amount("rent", 300, 4000, 10),
         amount("rooms", 1, 9), amount("area", 20, 300), year("renovation_year", 1980, 2025)}},
       "in",
       {"buildings",
        {title("title"), category("material", kMaterials), amount("height", 8, 400),
         amount("floors", 2, 90), year("construction_year", 1850, 2022)}},
       "building_id"},
  };
}

std::vector<CorpusDomain> culture() {
  return {
      {{"films",
        {title("title"), category("genre", kGenres), category("language", kLanguages),
         amount("duration", 60, 220), amount("budget", 10, 990, 5),
         year("release_year", 1930, 2025)}},
       "by",
       {"directors",
        {person("name"), category("country", kCountries), amount("awards", 0, 40),
         amount("age", 25, 90), year("debut_year", 1930, 2020)}},
       "director_id"},
      {{"books",
        {title("title"), category("genre", kGenres), category("language", kLanguages),
         amount("pages", 60, 1200), amount("price", 4, 90), year("publication_year", 1850, 2025)}},
       "by",
       {"authors",
        {person("name"), category("country", kCountries), category("city", kCities),
         amount("prizes", 0, 30), year("birth_year", 1820, 2000)}},
       "author_id"},
      {{"songs",
        {title("title"), category("style", kMusic), category("language", kLanguages),
         amount("length", 90, 600), amount("plays", 100, 99000, 100),
         year("release_year", 1950, 2025)}},
       "by",
       {"singers",
        {person("name"), category("country", kCountries), category("genre", kMusic),
         amount("age", 16, 85), amount("followers", 100, 90000, 100)}},
       "singer_id"},
      {{"paintings",
        {title("title"), category("style", kGenres), category("color", kColors),
         amount("price", 100, 99000, 100), amount("width", 10, 400),
         year("creation_year", 1500, 2020)}},
       "in",
       {"museums",
        {title("title"), category("city", kCities), category("country", kCountries),
         amount("visitors", 1000, 900000, 500), amount("ticket_price", 2, 45)}},
       "museum_id"},
      {{"players",
        {person("name"), category("position", kPositions), category("nationality", kCountries),
         amount("goals", 0, 300), amount("age", 16, 42), amount("height", 155, 215)}},
       "in",
       {"teams",
        {title("nickname"), category("city", kCities), person("coach"), amount("points", 0, 110),
         year("founding_year", 1870, 2010)}},
       "team_id"},
      {{"dishes",
        {title("label"), category("cuisine", kCuisines), amount("price", 3, 80),
         amount("calories", 80, 1500, 10), amount("minutes", 5, 180, 5),
         category("difficulty", kLevels)}},
       "in",
       {"restaurants",
        {person("chef"), category("city", kCities), category("cuisine", kCuisines),
         amount("seats", 10, 250), amount("stars", 1, 50)}},
       "restaurant_id"},
  };
}

std::vector<CorpusDomain> travel_and_study() {
  return {
      {{"flights",
        {category("airline", kAirlines), category("destination", kCities),
         category("weekday", kDays), amount("distance", 150, 12000, 50),
         amount("price", 30, 2500, 5), amount("passengers", 20, 500)}},
       "from",
       {"airports",
        {title("title"), category("city", kCities), category("country", kCountries),
         amount("runways", 1, 8), amount("elevation", 0, 3500, 10)}},
       "airport_id"},
      {{"students",
        {person("name"), category("major", kMajors), category("city", kCities),
         amount("age", 17, 40), amount("credits", 0, 300, 5), year("entry_year", 1995, 2025)}},
       "at",
       {"schools",
        {title("title"), category("city", kCities), category("country", kCountries),
         amount("fee", 0, 40000, 250), year("founding_year", 1400, 2015)}},
       "school_id"},
      {{"courses",
        {category("subject", kMajors), category("level", kLevels), category("weekday", kDays),
         title("title"), amount("hours", 5, 120), amount("fee", 0, 3000, 10),
         amount("places", 5, 300, 5)}},
       "by",
       {"teachers",
        {person("name"), category("language", kLanguages), category("city", kCities),
         amount("age", 24, 70), amount("salary", 20000, 90000, 500)}},
       "teacher_id"},
      {{"hotels",
        {title("title"), category("manager_language", kLanguages), category("color", kColors),
         amount("rooms", 5, 900), amount("price", 25, 900, 5), year("opening_year", 1880, 2024)}},
       "in",
       {"resorts",
        {title("label"), category("country", kCountries), person("mayor"), amount("beaches", 0, 25),
         amount("population", 500, 90000, 100)}},
       "resort_id"},
      {{"trains",
        {category("destination", kCities), category("fuel", kFuels), category("weekday", kDays),
         amount("speed", 60, 350, 5), amount("wagons", 2, 40), amount("delay", 0, 180)}},
       "from",
       {"stations",
        {title("title"), category("city", kCities), amount("platforms", 1, 30), person("director"),
         year("opening_year", 1840, 2020)}},
       "station_id"},
      {{"ships",
        {title("title"), category("color", kColors), category("flag", kCountries),
         amount("length", 20, 400), amount("crew", 5, 900, 5), year("launch_year", 1900, 2024)}},
       "in",
       {"harbors",
        {category("city", kCities), category("country", kCountries), amount("depth", 4, 60),
         amount("docks", 1, 80), person("captain")}},
       "harbor_id"},
  };
}

}  // namespace

std::string CorpusColumn::value(Random& random) const {
  if (!is_text()) return std::to_string(low + step * random.below((high - low) / step + 1));
  const auto pick = [&](WordList list) {
    return std::string(
        list[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(list.size())))]);
  };
  std::string text = pick(words);
  if (!second_words.empty()) text.append(" ").append(pick(second_words));
  return text;
}

const std::vector<CorpusDomain>& corpus_domains() {
  static const std::vector<CorpusDomain> domains = [] {
    std::vector<CorpusDomain> all = work_and_trade();
    for (CorpusDomain& domain : culture()) all.push_back(std::move(domain));
    for (CorpusDomain& domain : travel_and_study()) all.push_back(std::move(domain));
    return all;
  }();
  return domains;
}

}  // namespace ladder
