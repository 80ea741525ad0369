// What queries there are, in SQL and in English, as templates: an @ and a letter stand for words.
#pragma once

#include <string_view>
#include <vector>

namespace ladder {

using Templates = std::vector<std::string_view>;

// In shapes: `@a` the column, `@b` the second, `@g` the group, `@o` the order, `@d` its direction,
// `@h` the same as highest or lowest, `@n` the number, `@f` the aggregate, `@t` the table, `@w` its
// rows that meet the conditions.
struct SqlShape {
  int weight;  // how often it is sampled, of 16
  std::string_view sql;
  Templates questions;
};

struct SqlAggregate {
  std::string_view sql;
  Templates words;
};

// In operators: `@c` the column, `@v` the value, `@u` the upper bound.
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

}  // namespace ladder
