#include "common/data/corpus/sql_query.hpp"

#include <algorithm>

namespace ladder {

const std::vector<SqlShape> kSqlShapes = {
    {3,
     "SELECT @a FROM @w",
     {"What is the @a of @w?", "List the @a of all @w.", "Show the @a of the @w.",
      "Give me the @a for @w.", "Find the @a of every one of the @w."}},
    {2,
     "SELECT @a, @b FROM @w",
     {"What are the @a and @b of @w?", "List @a and @b of all @w.",
      "Show both the @a and the @b of the @w."}},
    {1,
     "SELECT DISTINCT @a FROM @w",
     {"What are the different @a values of @w?", "List every distinct @a of the @w.",
      "Which @a values occur among @w? Name each once."}},
    {2,
     "SELECT COUNT(*) FROM @w",
     {"How many @w are there?", "Count the @w.", "What is the number of @w?"}},
    {3,
     "SELECT @f(@a) FROM @w",
     {"What is the @f @a of @w?", "Find the @f @a among the @w.", "Tell me the @f @a of all @w."}},
    {1,
     "SELECT @g, COUNT(*) FROM @t GROUP BY @g",
     {"How many @t are there for each @g?", "Count the @t per @g.",
      "Show each @g with its number of @t."}},
    {1,
     "SELECT @g, @f(@a) FROM @t GROUP BY @g",
     {"What is the @f @a of @t for each @g?", "Show the @f @a of @t per @g.",
      "For every @g, find the @f @a of its @t."}},
    {1,
     "SELECT @g FROM @t GROUP BY @g HAVING COUNT(*) > @n",
     {"Which @g values have more than @n @t?", "Find each @g with more than @n @t.",
      "For which @g are there over @n @t?"}},
    {1,
     "SELECT @a FROM @w ORDER BY @o @d",
     {"List the @a of all @w, sorted by @o in @d order.", "Show the @a of @w ordered by @o, @d.",
      "In @d order of @o, give the @a of @w."}},
    {1,
     "SELECT @a FROM @t ORDER BY @o @d LIMIT @n",
     {"What is the @a of the @n @t with the @h @o?", "List the @a of the @n @t of @h @o.",
      "Take the @n @t with the @h @o and show their @a."}},
};

const std::vector<SqlAggregate> kSqlAggregates = {{"MAX", {"highest", "largest", "maximum"}},
                                                  {"MIN", {"lowest", "smallest", "minimum"}},
                                                  {"AVG", {"average", "mean"}},
                                                  {"SUM", {"total", "summed"}}};

const std::vector<SqlOperator> kNumberOperators = {
    {2, "@c > @v", {"whose @c is above @v", "with @c greater than @v", "with more than @v @c"}, 1},
    {2, "@c < @v", {"whose @c is below @v", "with @c less than @v", "with @c under @v"}, 0},
    {1, "@c >= @v", {"whose @c is at least @v", "with @c of @v or more"}, 3},
    {1, "@c <= @v", {"whose @c is at most @v", "with @c of @v or less"}, 2},
    {1, "@c = @v", {"whose @c is @v", "with @c of @v", "where the @c equals @v"}, 6},
    {1, "@c BETWEEN @v AND @u", {"whose @c is between @v and @u", "with @c from @v to @u"}, 0},
    {0, "@c != @v", {}, 4},
};

const std::vector<SqlOperator> kTextOperators = {
    {4, "@c = '@v'", {"whose @c is @v", "with @c @v", "where the @c is @v"}, 1},
    {1, "@c != '@v'", {"whose @c is not @v", "with @c other than @v"}, 0},
    {1, "@c LIKE '@v%'", {"whose @c starts with @v", "with @c beginning with @v"}, 3},
    {1, "@c LIKE '%@v'", {"whose @c ends with @v", "with @c ending in @v"}, 4},
    {1, "@c LIKE '%@v%'", {"whose @c contains @v", "with @v in the @c"}, 2},
};

namespace {

template <class Weighted>
const Weighted* sample(const std::vector<Weighted>& all, std::int64_t sum_of_weights,
                       Random& random) {
  const Weighted* each = all.data();
  for (std::int64_t left = random.below(sum_of_weights); left >= each->weight; ++each)
    left -= each->weight;
  return each;
}

SqlCondition sample_number_condition(const CorpusColumn& column, Random& random) {
  SqlCondition condition{&column, sample(kNumberOperators, 8, random), column.value(random), ""};
  if (!has(condition.op->sql, "@u")) return condition;
  const std::int64_t low = std::stoll(condition.value);
  const std::int64_t steps_above = std::max<std::int64_t>((column.high - low) / column.step, 1);
  condition.upper = std::to_string(low + column.step * (1 + random.below(steps_above)));
  return condition;
}

SqlCondition sample_text_condition(const CorpusColumn& column, Random& random) {
  SqlCondition condition{&column, sample(kTextOperators, 8, random), column.value(random), ""};
  std::string& value = condition.value;
  const auto num_letters = static_cast<std::size_t>(1 + random.below(2));
  const bool is_start = has(condition.op->sql, "@v%"), is_end = has(condition.op->sql, "%@v");
  if (is_start && is_end) {
    value = value.substr(1, 2);
  } else if (is_start) {
    value.resize(num_letters);
  } else if (is_end) {
    value = value.substr(value.size() - num_letters);
  }
  return condition;
}

// The table whose rows the conditions are about.
const CorpusTable& table_of_conditions(const SqlQuery& query, const CorpusSchema& schema) {
  return query.is_join ? *schema.other : schema.main;
}

std::vector<const CorpusColumn*> columns_with_conditions(const SqlQuery& query) {
  std::vector<const CorpusColumn*> columns;
  for (const SqlCondition& condition : query.conditions) columns.push_back(condition.column);
  return columns;
}

// Adds a condition on a column that does not have one yet.
void add_condition(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  std::vector<const CorpusColumn*> taken = columns_with_conditions(query);
  taken.push_back(query.column);
  const CorpusColumn* column = table_of_conditions(query, schema).pick(random, is_any, taken);
  if (column == nullptr) return;
  query.conditions.push_back(is_text(*column) ? sample_text_condition(*column, random)
                                              : sample_number_condition(*column, random));
}

void sample_conditions(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.is_join = schema.main_has_parent && random.below(4) != 0;
  add_condition(query, schema, random);
  if (random.below(5) == 0) add_condition(query, schema, random);
}

void sample_aggregate(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.column = schema.main.pick(random, is_number);
  query.aggregate = &kSqlAggregates[random.below(query.column->is_additive ? 4 : 2)];
}

// Each function writes the columns of its shape into the query.
void sample_rows(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.column = schema.main.pick(random, is_any);
  if (query.has("@b")) query.second_column = schema.main.pick(random, is_any, {query.column});
  if (query.has("@o")) {
    query.order_by = schema.main.pick(random, is_number, {query.column});
    if (query.order_by == nullptr) {  // the only number is already selected
      query.order_by = query.column;
      query.column = schema.main.pick(random, is_any, {query.order_by});
    }
    query.is_descending = random.below(2) == 0;
  }
  if (query.has("@n")) query.number = 2 + random.below(9);
}

void sample_group(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.group_by = schema.main.pick(random, is_category);
  if (query.group_by == nullptr) query.group_by = schema.main.pick(random, is_number);
  if (query.has("@n")) query.number = 2 + random.below(49);
  if (!query.has("@f")) return;
  sample_aggregate(query, schema, random);
  if (query.column == query.group_by) {  // no other column is left to aggregate
    --query.shape;                       // counts the group's rows instead
    query.column = nullptr;
  }
}

}  // namespace

SqlQuery sample_query(const CorpusSchema& schema, Random& random) {
  SqlQuery query = {.shape = sample(kSqlShapes, 16, random)};
  if (query.has("@g")) {
    sample_group(query, schema, random);
  } else if (query.has("@f")) {
    sample_aggregate(query, schema, random);
  } else if (query.has("@a")) {
    sample_rows(query, schema, random);
  }
  if (query.has("@w")) sample_conditions(query, schema, random);
  return query;
}

namespace {

// The template with a word for each @x.
template <class WordOf>
std::string fill(std::string_view text, const WordOf& word_of) {
  std::string filled;
  for (std::size_t i = 0; i < text.size(); ++i)
    filled += text[i] == '@' ? word_of(text[++i]) : std::string(1, text[i]);
  return filled;
}

// Fills in a condition, in SQL or in English; `name_of` says how a column is called there.
template <class NameOf>
std::string fill(std::string_view text, const SqlCondition& condition, const NameOf& name_of) {
  return fill(text, [&](char letter) {
    return letter == 'c'   ? name_of(condition.column)
           : letter == 'v' ? condition.value
                           : condition.upper;
  });
}

const CorpusColumn* column_of(char letter, const SqlQuery& query) {
  return letter == 'a'   ? query.column
         : letter == 'b' ? query.second_column
         : letter == 'g' ? query.group_by
                         : query.order_by;
}

std::string words_of(const CorpusColumn* column) {
  std::string words = column->name;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

std::string to_sql(const SqlQuery& query, const CorpusSchema& schema) {
  const std::string& main = schema.main.name;
  const auto name_in = [&](const CorpusTable& table) {
    return [&](const CorpusColumn* column) {
      return query.is_join ? table.name + "." + column->name : column->name;
    };
  };
  const auto rows = [&] {
    std::string sql = main;
    if (query.is_join) {
      const std::string& parent = schema.other->name;
      sql += " JOIN " + parent + " ON " + main + "." + schema.domain->key + " = " + parent + ".id";
    }
    const char* joint = " WHERE ";
    for (const SqlCondition& condition : query.conditions) {
      sql +=
          joint + fill(condition.op->sql, condition, name_in(table_of_conditions(query, schema)));
      joint = " AND ";
    }
    return sql;
  };
  return fill(query.shape->sql, [&](char letter) -> std::string {
    if (letter == 'd') return query.is_descending ? "DESC" : "ASC";
    if (letter == 'f') return std::string(query.aggregate->sql);
    if (letter == 'n') return std::to_string(query.number);
    if (letter == 't') return main;
    if (letter == 'w') return rows();
    return name_in(schema.main)(column_of(letter, query));
  });
}

std::string ask(const SqlQuery& query, const CorpusSchema& schema, Random& random) {
  const auto rows = [&] {
    std::string text = schema.main.name;
    if (query.is_join) text += " " + schema.domain->preposition + " " + schema.other->name;
    const char* joint = " ";
    for (const SqlCondition& condition : query.conditions) {
      text += joint + fill(pick_from(condition.op->words, random), condition, words_of);
      joint = " and ";
    }
    return text;
  };
  return fill(pick_from(query.shape->questions, random), [&](char letter) -> std::string {
    if (letter == 'd') return query.is_descending ? "descending" : "ascending";
    if (letter == 'h') return query.is_descending ? "highest" : "lowest";
    if (letter == 'f') return std::string(pick_from(query.aggregate->words, random));
    if (letter == 'n') return std::to_string(query.number);
    if (letter == 't') return schema.main.name;
    if (letter == 'w') return rows();
    return words_of(column_of(letter, query));
  });
}

namespace {

// Unless there is no other.
void replace(const CorpusColumn*& column, const CorpusColumn* other) {
  if (other != nullptr) column = other;
}

// Each of these changes one thing, if the query has it: mistakes that a careless reader of the
// question would make.

void change_column(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  if (query.column == nullptr) return;
  replace(query.column,
          schema.main.pick(random, query.has("@f") ? is_number : is_any,
                           {query.column, query.second_column, query.group_by, query.order_by}));
}

void change_aggregate(SqlQuery& query, const CorpusSchema&, Random& random) {
  query.aggregate = &kSqlAggregates[random.below(4)];
}

void change_condition_column(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  if (query.conditions.empty()) return;
  const CorpusColumn*& column = query.conditions.front().column;
  replace(column, table_of_conditions(query, schema)
                      .pick(random, is_text(*column) ? is_text : is_number,
                            columns_with_conditions(query)));
}

void change_operator(SqlQuery& query, const CorpusSchema&, Random& random) {
  if (query.conditions.empty()) return;
  const std::int64_t number = random.below(std::ssize(query.conditions));
  SqlCondition& condition = query.conditions[static_cast<std::size_t>(number)];
  const auto& operators = is_text(*condition.column) ? kTextOperators : kNumberOperators;
  condition.op = &operators[condition.op->opposite];
}

void change_value(SqlQuery& query, const CorpusSchema&, Random& random) {
  if (query.conditions.empty()) return;
  SqlCondition& condition = query.conditions.back();
  const std::size_t length = condition.value.size();
  if (has(condition.op->sql, "@u")) {
    condition.upper = std::to_string(std::stoll(condition.upper) +
                                     condition.column->step * (1 + random.below(9)));
  } else {
    condition.value = condition.column->value(random);
  }
  if (has(condition.op->sql, "%")) condition.value.resize(length);
}

void drop_condition(SqlQuery& query, const CorpusSchema&, Random&) {
  if (!query.is_join && !query.conditions.empty()) query.conditions.pop_back();
}

void change_group(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  if (query.group_by == nullptr) return;
  replace(query.group_by, schema.main.pick(random, is_any, {query.group_by, query.column}));
}

void change_order(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  if (query.order_by == nullptr) return;
  const CorpusColumn* other = schema.main.pick(random, is_number, {query.order_by, query.column});
  if (other == nullptr || random.below(2) == 0) {
    query.is_descending = !query.is_descending;
  } else {
    query.order_by = other;
  }
}

void change_number(SqlQuery& query, const CorpusSchema&, Random& random) {
  if (query.number > 0) query.number = 1 + random.below(2 * query.number);
}

}  // namespace

SqlQuery corrupt(const SqlQuery& query, const CorpusSchema& schema, Random& random) {
  using Mistake = void (*)(SqlQuery&, const CorpusSchema&, Random&);
  constexpr Mistake kMistakes[] = {change_column,   change_aggregate, change_condition_column,
                                   change_operator, change_value,     drop_condition,
                                   change_group,    change_order,     change_number};
  const std::string right = to_sql(query, schema);
  while (true) {  // ends: every shape has an operator, a column or a group to change
    SqlQuery wrong = query;
    pick_from(kMistakes, random)(wrong, schema, random);
    if (to_sql(wrong, schema) != right) return wrong;
  }
}

}  // namespace ladder
