#include "common/data/corpus/schema.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace ladder {
namespace {

// NAME: and the words of a list, or the columns of a table. A column is
//   NAME=LIST            a text from a list, where an underscore stands for a space; a word of LIST+
//                        follows it if there is such a list
//   NAME=LOW:HIGH:STEP   an amount; without STEP, in steps of 1
//   NAME=LOW-HIGH        a year
constexpr const char* kWords = R"(
person: Anna Bruno Clara David Elena Felix Grace Hugo Ines Jonas Karin Louis Maria Nils Olga Pedro
  Quentin Rosa Samuel Tara Ulrich Vera Walter Xenia Yusuf Zoe Amir Bela Carlos Dora Emil Fatima
person+: Adler Berg Costa Dahl Evans Fischer Garcia Hansen Ito Jansen Kovacs Larsen Moreau Novak
  Okoye Patel Quinn Rossi Silva Tanaka Urban Vogel Weber Zhang
title: Silent Golden Broken Crimson Distant Endless Frozen Gentle Hidden Iron Lonely Mighty
  Northern Painted Quiet Rising Secret Tender Velvet Winter
title+: Anchor Bridge Castle Desert Empire Forest Garden Harbor Island Journey Kingdom Lantern
  Mirror Night Ocean Planet River Shadow Tower Valley
cities: Athens Berlin Cairo Dublin Geneva Hanoi Istanbul Jakarta Kyoto Lisbon Madrid Nairobi Oslo
  Paris Quito Rome Seoul Tokyo Utrecht Vienna Warsaw Zurich Boston Denver
countries: Austria Brazil Canada Denmark Egypt France Germany Hungary India Japan Kenya Latvia
  Mexico Norway Poland Spain Turkey Uruguay Vietnam Italy
jobs: engineer clerk manager analyst designer driver nurse lawyer
colors: red blue green black white silver yellow brown
genres: drama comedy thriller western horror romance history fantasy
music: jazz rock folk opera blues soul techno reggae
majors: physics history biology law music economics chemistry art
languages: English French German Spanish Hindi Arabic Swahili Polish
status: open shipped paid cancelled returned delayed
positions: goalkeeper defender midfielder striker winger captain
materials: oak steel glass cotton leather marble paper copper
fuels: petrol diesel electric hybrid hydrogen
levels: basic medium advanced expert
illnesses: flu asthma migraine fracture allergy measles anemia
cuisines: thai greek indian mexican italian korean turkish vegan
days: Monday Tuesday Wednesday Thursday Friday Saturday Sunday
airlines: Skyline Aero_Nova Blue_Wing Polar_Air Sunjet Condora
)";

constexpr const char* kTables = R"(
employees: name=person job=jobs city=cities salary=20000:99000:500 age=18:66 hire_year=1985-2024
departments: title=title location=cities budget=10000:900000:5000 floor=1:30 head=person
orders: status=status destination=cities price=5:2000:5 quantity=1:60 order_year=2005-2025
  weekday=days
customers: name=person country=countries language=languages credit=100:9000:50 age=18:90
products: label=title color=colors material=materials price=1:800 weight=10:5000:10 stock=0:400
suppliers: contact=person country=countries city=cities rating=1:100 since=1970-2024
cars: model=title color=colors fuel=fuels price=4000:90000:250 horsepower=50:600:5
  model_year=1980-2025
makers: brand=title country=countries revenue=100:9900:10 founding_year=1890-2015 chairman=person
patients: name=person illness=illnesses city=cities age=1:99 weight=30:140
  admission_year=2000-2025
hospitals: title=title city=cities country=countries beds=20:1500:5 opening_year=1900-2020
apartments: city=cities owner=person rent=300:4000:10 rooms=1:9 area=20:300
  renovation_year=1980-2025
buildings: title=title material=materials height=8:400 floors=2:90 construction_year=1850-2022
films: title=title genre=genres language=languages duration=60:220 budget=10:990:5
  release_year=1930-2025
directors: name=person country=countries awards=0:40 age=25:90 debut_year=1930-2020
books: title=title genre=genres language=languages pages=60:1200 price=4:90
  publication_year=1850-2025
authors: name=person country=countries city=cities prizes=0:30 birth_year=1820-2000
songs: title=title style=music language=languages length=90:600 plays=100:99000:100
  release_year=1950-2025
singers: name=person country=countries genre=music age=16:85 followers=100:90000:100
paintings: title=title style=genres color=colors price=100:99000:100 width=10:400
  creation_year=1500-2020
museums: title=title city=cities country=countries visitors=1000:900000:500 ticket_price=2:45
players: name=person position=positions nationality=countries goals=0:300 age=16:42 height=155:215
teams: nickname=title city=cities coach=person points=0:110 founding_year=1870-2010
dishes: label=title cuisine=cuisines price=3:80 calories=80:1500:10 minutes=5:180:5
  difficulty=levels
restaurants: chef=person city=cities cuisine=cuisines seats=10:250 stars=1:50
flights: airline=airlines destination=cities weekday=days distance=150:12000:50 price=30:2500:5
  passengers=20:500
airports: title=title city=cities country=countries runways=1:8 elevation=0:3500:10
students: name=person major=majors city=cities age=17:40 credits=0:300:5 entry_year=1995-2025
schools: title=title city=cities country=countries fee=0:40000:250 founding_year=1400-2015
courses: subject=majors level=levels weekday=days title=title hours=5:120 fee=0:3000:10
  places=5:300:5
teachers: name=person language=languages city=cities age=24:70 salary=20000:90000:500
hotels: title=title manager_language=languages color=colors rooms=5:900 price=25:900:5
  opening_year=1880-2024
resorts: label=title country=countries mayor=person beaches=0:25 population=500:90000:100
trains: destination=cities fuel=fuels weekday=days speed=60:350:5 wagons=2:40 delay=0:180
stations: title=title city=cities platforms=1:30 director=person opening_year=1840-2020
ships: title=title color=colors flag=countries length=20:400 crew=5:900:5 launch_year=1900-2024
harbors: city=cities country=countries depth=4:60 docks=1:80 captain=person
)";

constexpr const char* kDomains = R"(
employees in departments   orders by customers   products from suppliers   cars from makers
patients in hospitals   apartments in buildings   films by directors   books by authors   songs by singers
paintings in museums   players in teams   dishes in restaurants   flights from airports
students at schools   courses by teachers   hotels in resorts   trains from stations   ships in harbors
)";

using Lists = std::map<std::string, std::vector<std::string>>;

Lists read_lists(const char* text) {
  Lists lists;
  std::vector<std::string>* list = nullptr;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (word.back() == ':') {
      list = &lists[word.substr(0, word.size() - 1)];
    } else {
      list->push_back(word);
    }
  }
  return lists;
}

CorpusColumn read_column(const std::string& text, const Lists& words) {
  const std::size_t equals = text.find('=');
  CorpusColumn column = {.name = text.substr(0, equals)};
  const std::string values = text.substr(equals + 1);
  if (words.contains(values)) {
    column.words = words.at(values);
    if (words.contains(values + '+')) column.second_words = words.at(values + '+');
    return column;
  }
  std::istringstream stream(values);
  char separator = 0;
  stream >> column.low >> separator >> column.high;
  column.is_additive = separator == ':';
  stream >> separator >> column.step;
  return column;
}

std::vector<CorpusDomain> read_domains() {
  static Lists words = read_lists(kWords);  // columns refer to them
  for (auto& [name, list] : words)
    for (std::string& word : list) std::replace(word.begin(), word.end(), '_', ' ');
  const Lists tables = read_lists(kTables);
  const auto table_of = [&](const std::string& name) {
    CorpusTable table = {name, {}};
    for (const std::string& column : tables.at(name))
      table.columns.push_back(read_column(column, words));
    return table;
  };
  std::vector<CorpusDomain> domains;
  std::istringstream stream(kDomains);
  for (std::string table, preposition, parent; stream >> table >> preposition >> parent;) {
    const std::string singular = parent.substr(0, parent.size() - 1);
    domains.push_back({table_of(table), preposition, table_of(parent), singular + "_id"});
  }
  return domains;
}

}  // namespace

bool is_any(const CorpusColumn& /*column*/) {
  return true;
}
bool is_number(const CorpusColumn& column) {
  return column.words.empty();
}
bool is_text(const CorpusColumn& column) {
  return !is_number(column);
}
bool is_category(const CorpusColumn& column) {
  return is_text(column) && column.second_words.empty();
}

std::string CorpusColumn::value(Random& random) const {
  if (is_number(*this)) return std::to_string(low + step * random.below((high - low) / step + 1));
  std::string text = pick_from(words, random);
  if (!second_words.empty()) text += ' ' + pick_from(second_words, random);
  return text;
}

const CorpusColumn* CorpusTable::pick(Random& random, bool (*is_of_kind)(const CorpusColumn&),
                                      const std::vector<const CorpusColumn*>& except) const {
  std::vector<const CorpusColumn*> candidates;
  for (const CorpusColumn& column : columns) {
    const bool is_taken = std::find(except.begin(), except.end(), &column) != except.end();
    if (is_of_kind(column) && !is_taken) candidates.push_back(&column);
  }
  return candidates.empty() ? nullptr : pick_from(candidates, random);
}

const std::vector<CorpusDomain>& corpus_domains() {
  static const std::vector<CorpusDomain> domains = read_domains();
  return domains;
}

namespace {

// Three to five columns of the table, in random order, so that their positions reveal nothing.
CorpusTable sample_table(const CorpusTable& table, Random& random) {
  const std::int64_t size = std::ssize(table.columns);
  const std::int64_t num_columns = std::min<std::int64_t>(3 + random.below(3), size);
  while (true) {
    CorpusTable sampled = table;
    const auto first = sampled.columns.begin();
    for (std::int64_t i = 0; i < num_columns; ++i)
      std::iter_swap(first + i, first + i + random.below(size - i));
    sampled.columns.resize(static_cast<std::size_t>(num_columns));
    const auto num_texts = std::count_if(sampled.columns.begin(), sampled.columns.end(), is_text);
    if (0 < num_texts && num_texts < num_columns) return sampled;
  }
}

std::string create_statement(const CorpusTable& table, const std::string& before = "",
                             const std::string& after = "") {
  std::string columns;
  for (const CorpusColumn& column : table.columns) {
    if (!columns.empty()) columns += ", ";
    columns += column.name + (is_text(column) ? " TEXT" : " INT");
  }
  return "CREATE TABLE " + table.name + " (" + before + columns + after + ")";
}

}  // namespace

std::string CorpusSchema::create_statements() const {
  if (!other) return create_statement(main);
  const std::string id = "id INT, ", key = ", " + domain->key + " INT";
  return main_has_parent ? create_statement(main, "", key) + "; " + create_statement(*other, id)
                         : create_statement(main, id) + "; " + create_statement(*other, "", key);
}

CorpusSchema sample_schema(Random& random) {
  const CorpusDomain& domain = pick_from(corpus_domains(), random);
  const bool is_about_parent = random.below(3) == 0;
  const bool shows_both = random.below(3) == 0;
  CorpusSchema schema = {&domain,
                         sample_table(is_about_parent ? domain.parent : domain.table, random)};
  if (!shows_both) return schema;
  schema.other = sample_table(is_about_parent ? domain.table : domain.parent, random);
  schema.main_has_parent = !is_about_parent;
  return schema;
}

}  // namespace ladder
