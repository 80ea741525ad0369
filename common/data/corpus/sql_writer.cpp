#include "common/data/corpus/sql_query.hpp"

namespace ladder {
namespace {

// A column's name, qualified with its table's name if two tables are joined.
std::string column_name(const SqlQuery& query, const SchemaTable& table,
                        const CorpusColumn* column) {
  const std::string name(column->name);
  return query.is_join ? std::string(table.name) + "." + name : name;
}

std::string aggregate_of(SqlAggregate aggregate, const std::string& column) {
  switch (aggregate) {
    case SqlAggregate::kAverage:
      return "AVG(" + column + ")";
    case SqlAggregate::kSum:
      return "SUM(" + column + ")";
    case SqlAggregate::kMinimum:
      return "MIN(" + column + ")";
    case SqlAggregate::kMaximum:
      break;
  }
  return "MAX(" + column + ")";
}

std::string selection_of(const SqlQuery& query, const CorpusSchema& schema) {
  const std::string group =
      query.group_by == nullptr ? "" : column_name(query, schema.main, query.group_by);
  const std::string column =
      query.column == nullptr ? "" : column_name(query, schema.main, query.column);
  switch (query.shape) {
    case SqlShape::kSelectTwo:
      return column + ", " + column_name(query, schema.main, query.second_column);
    case SqlShape::kDistinct:
      return "DISTINCT " + column;
    case SqlShape::kCount:
      return "COUNT(*)";
    case SqlShape::kAggregate:
      return aggregate_of(query.aggregate, column);
    case SqlShape::kCountPerGroup:
      return group + ", COUNT(*)";
    case SqlShape::kAggregatePerGroup:
      return group + ", " + aggregate_of(query.aggregate, column);
    case SqlShape::kLargeGroups:
      return group;
    default:
      return column;
  }
}

std::string condition_of(const SqlCondition& condition, const std::string& column) {
  const std::string value =
      condition.column->is_text() ? "'" + condition.value + "'" : condition.value;
  switch (condition.op) {
    case SqlOperator::kEqual:
      return column + " = " + value;
    case SqlOperator::kNotEqual:
      return column + " != " + value;
    case SqlOperator::kGreater:
      return column + " > " + value;
    case SqlOperator::kLess:
      return column + " < " + value;
    case SqlOperator::kAtLeast:
      return column + " >= " + value;
    case SqlOperator::kAtMost:
      return column + " <= " + value;
    case SqlOperator::kBetween:
      return column + " BETWEEN " + value + " AND " + condition.upper;
    case SqlOperator::kStartsWith:
      return column + " LIKE '" + condition.value + "%'";
    case SqlOperator::kEndsWith:
      return column + " LIKE '%" + condition.value + "'";
    case SqlOperator::kContains:
      break;
  }
  return column + " LIKE '%" + condition.value + "%'";
}

}  // namespace

std::string to_sql(const SqlQuery& query, const CorpusSchema& schema) {
  const std::string main(schema.main.name);
  std::string sql = "SELECT " + selection_of(query, schema) + " FROM " + main;
  if (query.is_join) {
    const std::string parent(schema.other->name);
    sql += " JOIN " + parent + " ON " + main + "." + std::string(schema.domain->key) + " = " +
           parent + ".id";
  }
  const SchemaTable& conditioned = query.is_join ? *schema.other : schema.main;
  const char* word = " WHERE ";
  for (const SqlCondition& condition : query.conditions) {
    sql += word + condition_of(condition, column_name(query, conditioned, condition.column));
    word = " AND ";
  }
  if (query.group_by != nullptr)
    sql += " GROUP BY " + column_name(query, schema.main, query.group_by);
  if (query.shape == SqlShape::kLargeGroups)
    sql += " HAVING COUNT(*) > " + std::to_string(query.number);
  if (query.order_by != nullptr) {
    sql += " ORDER BY " + column_name(query, schema.main, query.order_by) +
           (query.is_descending ? " DESC" : " ASC");
  }
  if (query.shape == SqlShape::kTop) sql += " LIMIT " + std::to_string(query.number);
  return sql;
}

}  // namespace ladder
