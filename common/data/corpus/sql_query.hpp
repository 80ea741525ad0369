// A SELECT query over a schema, as a value that can be written as SQL, turned into an English
// question, or corrupted on purpose. What queries there are is said by templates, in SQL and in
// English, in which an @ and a letter stand for words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/core/seed.hpp"
#include "common/data/corpus/schema.hpp"

namespace ladder {

using Templates = std::vector<std::string_view>;

// In a shape, `@a` is the column, `@b` the second, `@g` the group, `@o` the order, `@d` its
// direction, `@h` the same as highest or lowest, `@n` the number, `@f` the aggregate, `@t` the
// table, `@w` its rows that meet the conditions.
struct SqlShape {
  int weight;  // how often it is sampled, of 16
  std::string_view sql;
  Templates questions;
};

struct SqlAggregate {
  std::string_view sql;
  Templates words;
};

// In an operator, `@c` is the column, `@v` the value, `@u` the upper bound.
struct SqlOperator {
  int weight;  // how often it is sampled, of 8
  std::string_view sql;
  Templates words;
  std::size_t opposite;  // what a careless reader takes it for: an index among those of its type
};

extern const std::vector<SqlShape> kSqlShapes;
extern const std::vector<SqlAggregate> kSqlAggregates;  // the first two suit any number
extern const std::vector<SqlOperator> kNumberOperators, kTextOperators;

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct SqlCondition {
  const CorpusColumn* column = nullptr;
  const SqlOperator* op = nullptr;
  std::string value;
  std::string upper;  // of BETWEEN
};

struct SqlQuery {
  const SqlShape* shape = nullptr;
  const CorpusColumn* column = nullptr;  // a; nullptr if only rows are counted
  const CorpusColumn* second_column = nullptr;
  const SqlAggregate* aggregate = nullptr;
  bool is_join = false;                  // conditions apply to the parent that main is joined with
  std::vector<SqlCondition> conditions;  // all must hold
  const CorpusColumn* group_by = nullptr;
  const CorpusColumn* order_by = nullptr;
  bool is_descending = false;
  std::int64_t number = 0;  // n of large groups and of the top n

  bool has(std::string_view part) const { return ladder::has(shape->sql, part); }
};

// Returns a random query that makes sense over this schema.
SqlQuery sample_query(const CorpusSchema& schema, Random& random);

std::string to_sql(const SqlQuery& query, const CorpusSchema& schema);

// Asks for the query in one of several ways, naming every value and column that it needs.
std::string ask(const SqlQuery& query, const CorpusSchema& schema, Random& random);

// Changes one thing (a column, an operator, a value, an aggregate, an order, a number, a condition)
// so that to_sql() returns a different query over the same schema.
SqlQuery corrupt(const SqlQuery& query, const CorpusSchema& schema, Random& random);

}  // namespace ladder
