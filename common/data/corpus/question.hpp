// What a query asks for, in English.
#pragma once

#include <string>

#include "common/core/seed.hpp"
#include "common/data/corpus/schema.hpp"
#include "common/data/corpus/sql_query.hpp"

namespace ladder {

// One of several ways to ask; every value and column that the query needs is named.
std::string ask(const SqlQuery& query, const CorpusSchema& schema, Random& random);

}  // namespace ladder
