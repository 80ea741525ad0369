#include "common/data/corpus/sql_query.hpp"

namespace ladder {
namespace {

// Each of these changes one thing, if the query has it: mistakes that a careless reader of the
// question would make.

void change_column(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  if (query.column == nullptr) return;
  const CorpusColumn* other =
      schema.main.pick(random, query.has("@f") ? is_number : is_any,
                       {query.column, query.second_column, query.group_by, query.order_by});
  if (other != nullptr) query.column = other;
}

void change_aggregate(SqlQuery& query, const CorpusSchema&, Random& random) {
  query.aggregate = &kSqlAggregates[random.below(4)];
}

void change_condition_column(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  if (query.conditions.empty()) return;
  SqlCondition& condition = query.conditions.front();
  std::vector<const CorpusColumn*> taken;
  for (const SqlCondition& each : query.conditions) taken.push_back(each.column);
  const CorpusTable& table = query.is_join ? *schema.other : schema.main;
  const CorpusColumn* other =
      table.pick(random, is_text(*condition.column) ? is_text : is_number, taken);
  if (other != nullptr) condition.column = other;
}

void change_operator(SqlQuery& query, const CorpusSchema&, Random& random) {
  if (query.conditions.empty()) return;
  const auto size = static_cast<std::int64_t>(query.conditions.size());
  SqlCondition& condition = query.conditions[static_cast<std::size_t>(random.below(size))];
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
  const CorpusColumn* other = schema.main.pick(random, is_any, {query.group_by, query.column});
  if (other != nullptr) query.group_by = other;
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
    kMistakes[random.below(9)](wrong, schema, random);
    if (to_sql(wrong, schema) != right) return wrong;
  }
}

}  // namespace ladder
