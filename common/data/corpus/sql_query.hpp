// A SELECT query over a schema, as a value that can be written as SQL, turned into an English
// question, or corrupted on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/seed.hpp"
#include "common/data/corpus/schema.hpp"
#include "common/data/corpus/sql_grammar.hpp"

namespace ladder {

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
