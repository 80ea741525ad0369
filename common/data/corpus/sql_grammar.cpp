#include "common/data/corpus/sql_grammar.hpp"

namespace ladder {

const std::vector<SqlShape> kSqlShapes = {
    {3,
     "SELECT @a FROM @w",
     {"What is the @a of @w?", "List the @a of all @w.", "Show the @a of the @w.",
      "Give me the @a for @w.", "Find the @a of every one of the @w."}},
    {2,
     "SELECT @a, @b FROM @w",
     {"What are the @a and @b of @w?", "List @a and @b of all @w.",
      "Show both the @a and the @b of the @w."}},
    {1,
     "SELECT DISTINCT @a FROM @w",
     {"What are the different @a values of @w?", "List every distinct @a of the @w.",
      "Which @a values occur among @w? Name each once."}},
    {2,
     "SELECT COUNT(*) FROM @w",
     {"How many @w are there?", "Count the @w.", "What is the number of @w?"}},
    {3,
     "SELECT @f(@a) FROM @w",
     {"What is the @f @a of @w?", "Find the @f @a among the @w.", "Tell me the @f @a of all @w."}},
    {1,
     "SELECT @g, COUNT(*) FROM @t GROUP BY @g",
     {"How many @t are there for each @g?", "Count the @t per @g.",
      "Show each @g with its number of @t."}},
    {1,
     "SELECT @g, @f(@a) FROM @t GROUP BY @g",
     {"What is the @f @a of @t for each @g?", "Show the @f @a of @t per @g.",
      "For every @g, find the @f @a of its @t."}},
    {1,
     "SELECT @g FROM @t GROUP BY @g HAVING COUNT(*) > @n",
     {"Which @g values have more than @n @t?", "Find each @g with more than @n @t.",
      "For which @g are there over @n @t?"}},
    {1,
     "SELECT @a FROM @w ORDER BY @o @d",
     {"List the @a of all @w, sorted by @o in @d order.", "Show the @a of @w ordered by @o, @d.",
      "In @d order of @o, give the @a of @w."}},
    {1,
     "SELECT @a FROM @t ORDER BY @o @d LIMIT @n",
     {"What is the @a of the @n @t with the @h @o?", "List the @a of the @n @t of @h @o.",
      "Take the @n @t with the @h @o and show their @a."}},
};

const std::vector<SqlAggregate> kSqlAggregates = {{"MAX", {"highest", "largest", "maximum"}},
                                                  {"MIN", {"lowest", "smallest", "minimum"}},
                                                  {"AVG", {"average", "mean"}},
                                                  {"SUM", {"total", "summed"}}};

const std::vector<SqlOperator> kNumberOperators = {
    {2, "@c > @v", {"whose @c is above @v", "with @c greater than @v", "with more than @v @c"}, 1},
    {2, "@c < @v", {"whose @c is below @v", "with @c less than @v", "with @c under @v"}, 0},
    {1, "@c >= @v", {"whose @c is at least @v", "with @c of @v or more"}, 3},
    {1, "@c <= @v", {"whose @c is at most @v", "with @c of @v or less"}, 2},
    {1, "@c = @v", {"whose @c is @v", "with @c of @v", "where the @c equals @v"}, 6},
    {1, "@c BETWEEN @v AND @u", {"whose @c is between @v and @u", "with @c from @v to @u"}, 0},
    {0, "@c != @v", {}, 4},
};

const std::vector<SqlOperator> kTextOperators = {
    {4, "@c = '@v'", {"whose @c is @v", "with @c @v", "where the @c is @v"}, 1},
    {1, "@c != '@v'", {"whose @c is not @v", "with @c other than @v"}, 0},
    {1, "@c LIKE '@v%'", {"whose @c starts with @v", "with @c beginning with @v"}, 3},
    {1, "@c LIKE '%@v'", {"whose @c ends with @v", "with @c ending in @v"}, 4},
    {1, "@c LIKE '%@v%'", {"whose @c contains @v", "with @v in the @c"}, 2},
};

}  // namespace ladder
