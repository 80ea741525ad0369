// A SELECT query over a schema, as a value that can be written as SQL, turned into an English
// question, or corrupted on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/seed.hpp"
#include "common/data/corpus/schema.hpp"

namespace ladder {

enum class SqlShape {
  kSelect,             // SELECT a FROM t WHERE …
  kSelectTwo,          // SELECT a, b FROM t WHERE …
  kDistinct,           // SELECT DISTINCT a FROM t WHERE …
  kCount,              // SELECT COUNT(*) FROM t WHERE …
  kAggregate,          // SELECT AVG(a) FROM t WHERE …
  kCountPerGroup,      // SELECT g, COUNT(*) FROM t GROUP BY g
  kAggregatePerGroup,  // SELECT g, AVG(a) FROM t GROUP BY g
  kLargeGroups,        // SELECT g FROM t GROUP BY g HAVING COUNT(*) > n
  kSorted,             // SELECT a FROM t WHERE … ORDER BY b
  kTop,                // SELECT a FROM t ORDER BY b LIMIT n
};

enum class SqlAggregate { kAverage, kSum, kMinimum, kMaximum };

enum class SqlOperator {
  kEqual,
  kNotEqual,
  kGreater,
  kLess,
  kAtLeast,
  kAtMost,
  kBetween,
  kStartsWith,
  kEndsWith,
  kContains
};

struct SqlCondition {
  const CorpusColumn* column = nullptr;
  SqlOperator op = SqlOperator::kEqual;
  std::string value;
  std::string upper;  // of kBetween
};

struct SqlQuery {
  SqlShape shape = SqlShape::kSelect;
  const CorpusColumn* column = nullptr;  // a; nullptr if only rows are counted
  const CorpusColumn* second_column = nullptr;
  SqlAggregate aggregate = SqlAggregate::kAverage;
  bool is_join = false;                  // conditions apply to the parent that main is joined with
  std::vector<SqlCondition> conditions;  // all must hold
  const CorpusColumn* group_by = nullptr;
  const CorpusColumn* order_by = nullptr;
  bool is_descending = false;
  std::int64_t number = 0;  // n of kLargeGroups and kTop
};

// Returns a random query that makes sense over this schema.
SqlQuery sample_query(const CorpusSchema& schema, Random& random);

std::string to_sql(const SqlQuery& query, const CorpusSchema& schema);

// Changes one thing (a column, an operator, a value, an aggregate, an order, a number, a condition)
// so that to_sql() returns a different query over the same schema.
SqlQuery corrupt(const SqlQuery& query, const CorpusSchema& schema, Random& random);

}  // namespace ladder
