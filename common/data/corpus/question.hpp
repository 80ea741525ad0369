// Questions in English for SQL queries.
#pragma once

#include <string>

#include "common/core/seed.hpp"
#include "common/data/corpus/schema.hpp"
#include "common/data/corpus/sql_query.hpp"

namespace ladder {

// Asks for the query in one of several ways, naming every value and column that it needs.
std::string ask(const SqlQuery& query, const CorpusSchema& schema, Random& random);

}  // namespace ladder
