#include "common/data/corpus/sql_query.hpp"

#include <algorithm>

namespace ladder {
namespace {

bool is_any(const CorpusColumn&) {
  return true;
}
bool is_number(const CorpusColumn& column) {
  return !column.is_text();
}
bool is_category(const CorpusColumn& column) {
  return column.is_category;
}

SqlCondition sample_number_condition(const CorpusColumn& column, Random& random) {
  constexpr SqlOperator kOperators[] = {
      SqlOperator::kGreater, SqlOperator::kGreater, SqlOperator::kLess,  SqlOperator::kLess,
      SqlOperator::kAtLeast, SqlOperator::kAtMost,  SqlOperator::kEqual, SqlOperator::kBetween};
  SqlCondition condition{&column, kOperators[random.below(8)], column.value(random), ""};
  if (condition.op != SqlOperator::kBetween) return condition;
  const std::int64_t low = std::stoll(condition.value);
  const std::int64_t steps_above = std::max<std::int64_t>((column.high - low) / column.step, 1);
  condition.upper = std::to_string(low + column.step * (1 + random.below(steps_above)));
  return condition;
}

SqlCondition sample_text_condition(const CorpusColumn& column, Random& random) {
  constexpr SqlOperator kOperators[] = {SqlOperator::kEqual,    SqlOperator::kEqual,
                                        SqlOperator::kEqual,    SqlOperator::kEqual,
                                        SqlOperator::kNotEqual, SqlOperator::kStartsWith,
                                        SqlOperator::kEndsWith, SqlOperator::kContains};
  SqlCondition condition{&column, kOperators[random.below(8)], column.value(random), ""};
  const std::size_t length = condition.value.size();
  const auto num_letters = static_cast<std::size_t>(1 + random.below(2));
  if (condition.op == SqlOperator::kStartsWith) condition.value.resize(num_letters);
  if (condition.op == SqlOperator::kEndsWith)
    condition.value = condition.value.substr(length - num_letters);
  if (condition.op == SqlOperator::kContains) condition.value = condition.value.substr(1, 2);
  return condition;
}

// Adds a condition on a column that does not have one yet.
void add_condition(SqlQuery& query, const SchemaTable& table, Random& random) {
  std::vector<const CorpusColumn*> taken = {query.column};
  for (const SqlCondition& condition : query.conditions) taken.push_back(condition.column);
  const CorpusColumn* column = table.pick(random, is_any, taken);
  if (column == nullptr) return;
  query.conditions.push_back(column->is_text() ? sample_text_condition(*column, random)
                                               : sample_number_condition(*column, random));
}

void sample_conditions(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.is_join = schema.main_has_parent && random.below(4) != 0;
  const SchemaTable& table = query.is_join ? *schema.other : schema.main;
  add_condition(query, table, random);
  if (random.below(5) == 0) add_condition(query, table, random);
}

void sample_aggregate(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.column = schema.main.pick(random, is_number);
  constexpr SqlAggregate kAggregates[] = {SqlAggregate::kMaximum, SqlAggregate::kMinimum,
                                          SqlAggregate::kAverage, SqlAggregate::kSum};
  query.aggregate = kAggregates[random.below(query.column->is_additive ? 4 : 2)];
}

// Each function writes the columns of its shape into the query.
void sample_rows(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.column = schema.main.pick(random, is_any);
  if (query.shape == SqlShape::kSelectTwo)
    query.second_column = schema.main.pick(random, is_any, {query.column});
  if (query.shape == SqlShape::kSorted || query.shape == SqlShape::kTop) {
    query.order_by = schema.main.pick(random, is_number, {query.column});
    if (query.order_by == nullptr) {  // the only number is already selected
      query.order_by = query.column;
      query.column = schema.main.pick(random, is_any, {query.order_by});
    }
    query.is_descending = random.below(2) == 0;
  }
  if (query.shape == SqlShape::kTop) query.number = 2 + random.below(9);
}

void sample_group(SqlQuery& query, const CorpusSchema& schema, Random& random) {
  query.group_by = schema.main.pick(random, is_category);
  if (query.group_by == nullptr) query.group_by = schema.main.pick(random, is_number);
  if (query.shape == SqlShape::kLargeGroups) query.number = 2 + random.below(49);
  if (query.shape != SqlShape::kAggregatePerGroup) return;
  sample_aggregate(query, schema, random);
  if (query.column == query.group_by) {  // no other column is left to aggregate
    query.shape = SqlShape::kCountPerGroup;
    query.column = nullptr;
  }
}

}  // namespace

SqlQuery sample_query(const CorpusSchema& schema, Random& random) {
  constexpr SqlShape kShapes[] = {SqlShape::kSelect,
                                  SqlShape::kSelect,
                                  SqlShape::kSelect,
                                  SqlShape::kSelectTwo,
                                  SqlShape::kSelectTwo,
                                  SqlShape::kDistinct,
                                  SqlShape::kCount,
                                  SqlShape::kCount,
                                  SqlShape::kAggregate,
                                  SqlShape::kAggregate,
                                  SqlShape::kAggregate,
                                  SqlShape::kCountPerGroup,
                                  SqlShape::kAggregatePerGroup,
                                  SqlShape::kLargeGroups,
                                  SqlShape::kSorted,
                                  SqlShape::kTop};
  SqlQuery query;
  query.shape = kShapes[random.below(16)];
  switch (query.shape) {
    case SqlShape::kCount:
      break;
    case SqlShape::kAggregate:
      sample_aggregate(query, schema, random);
      break;
    case SqlShape::kCountPerGroup:
    case SqlShape::kAggregatePerGroup:
    case SqlShape::kLargeGroups:
      sample_group(query, schema, random);
      return query;
    default:
      sample_rows(query, schema, random);
  }
  if (query.shape != SqlShape::kTop) sample_conditions(query, schema, random);
  return query;
}

}  // namespace ladder
