#include "common/data/corpus/sql_query.hpp"

#include <algorithm>

namespace ladder {
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

// Adds a condition on a column that does not have one yet.
void add_condition(SqlQuery& query, const CorpusTable& table, Random& random) {
  std::vector<const CorpusColumn*> taken = {query.column};
  for (const SqlCondition& condition : query.conditions) taken.push_back(condition.column);
  const CorpusColumn* column = table.pick(random, is_any, taken);
  if (column == nullptr) return;
  query.conditions.push_back(is_text(*column) ? sample_text_condition(*column, random)
                                              : sample_number_condition(*column, random));
}

void sample_conditions(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.is_join = schema.main_has_parent && random.below(4) != 0;
  const CorpusTable& table = query.is_join ? *schema.other : schema.main;
  add_condition(query, table, random);
  if (random.below(5) == 0) add_condition(query, table, random);
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

}  // namespace ladder
