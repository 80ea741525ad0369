#include "common/data/corpus/question.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace ladder {
namespace {

using Templates = std::initializer_list<std::string_view>;

std::string_view one_of(Templates choices, Random& random) {
  return choices.begin()[random.below(static_cast<std::int64_t>(choices.size()))];
}

std::string words_of(const CorpusColumn* column) {
  std::string words(column == nullptr ? "" : column->name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

// In the templates: @c the column, @v the value, @u the upper bound.
Templates condition_templates(SqlOperator op, bool is_text) {
  static const Templates kEqualText = {"whose @c is @v", "with @c @v", "where the @c is @v"};
  static const Templates kEqualNumber = {"whose @c is @v", "with @c of @v",
                                         "where the @c equals @v"};
  static const Templates kNotEqual = {"whose @c is not @v", "with @c other than @v"};
  static const Templates kGreater = {"whose @c is above @v", "with @c greater than @v",
                                     "with more than @v @c"};
  static const Templates kLess = {"whose @c is below @v", "with @c less than @v",
                                  "with @c under @v"};
  static const Templates kAtLeast = {"whose @c is at least @v", "with @c of @v or more"};
  static const Templates kAtMost = {"whose @c is at most @v", "with @c of @v or less"};
  static const Templates kBetween = {"whose @c is between @v and @u", "with @c from @v to @u"};
  static const Templates kStartsWith = {"whose @c starts with @v", "with @c beginning with @v"};
  static const Templates kEndsWith = {"whose @c ends with @v", "with @c ending in @v"};
  static const Templates kContains = {"whose @c contains @v", "with @v in the @c"};
  switch (op) {
    case SqlOperator::kEqual:
      return is_text ? kEqualText : kEqualNumber;
    case SqlOperator::kNotEqual:
      return kNotEqual;
    case SqlOperator::kGreater:
      return kGreater;
    case SqlOperator::kLess:
      return kLess;
    case SqlOperator::kAtLeast:
      return kAtLeast;
    case SqlOperator::kAtMost:
      return kAtMost;
    case SqlOperator::kBetween:
      return kBetween;
    case SqlOperator::kStartsWith:
      return kStartsWith;
    case SqlOperator::kEndsWith:
      return kEndsWith;
    case SqlOperator::kContains:
      break;
  }
  return kContains;
}

std::string ask_condition(const SqlCondition& condition, Random& random) {
  std::string text;
  bool is_name = false;
  for (const char letter :
       one_of(condition_templates(condition.op, condition.column->is_text()), random)) {
    if (is_name) {
      text += letter == 'c'   ? words_of(condition.column)
              : letter == 'v' ? condition.value
                              : condition.upper;
    } else if (letter != '@') {
      text += letter;
    }
    is_name = letter == '@';
  }
  return text;
}

// In the templates: @a the column, @b the second, @g the group, @o the order, @d its direction, @n
// the number, @t the table, @w its rows that meet the conditions, @f the aggregate.
Templates question_templates(SqlShape shape) {
  static const Templates kSelect = {"What is the @a of @w?", "List the @a of all @w.",
                                    "Show the @a of the @w.", "Give me the @a for @w.",
                                    "Find the @a of every one of the @w."};
  static const Templates kSelectTwo = {"What are the @a and @b of @w?", "List @a and @b of all @w.",
                                       "Show both the @a and the @b of the @w."};
  static const Templates kDistinct = {"What are the different @a values of @w?",
                                      "List every distinct @a of the @w.",
                                      "Which @a values occur among @w? Name each once."};
  static const Templates kCount = {"How many @w are there?", "Count the @w.",
                                   "What is the number of @w?"};
  static const Templates kAggregate = {"What is the @f @a of @w?", "Find the @f @a among the @w.",
                                       "Tell me the @f @a of all @w."};
  static const Templates kCountPerGroup = {"How many @t are there for each @g?",
                                           "Count the @t per @g.",
                                           "Show each @g with its number of @t."};
  static const Templates kAggregatePerGroup = {"What is the @f @a of @t for each @g?",
                                               "Show the @f @a of @t per @g.",
                                               "For every @g, find the @f @a of its @t."};
  static const Templates kLargeGroups = {"Which @g values have more than @n @t?",
                                         "Find each @g with more than @n @t.",
                                         "For which @g are there over @n @t?"};
  static const Templates kSorted = {"List the @a of all @w, sorted by @o in @d order.",
                                    "Show the @a of @w ordered by @o, @d.",
                                    "In @d order of @o, give the @a of @w."};
  static const Templates kTop = {"What is the @a of the @n @t with the @d @o?",
                                 "List the @a of the @n @t of @d @o.",
                                 "Take the @n @t with the @d @o and show their @a."};
  switch (shape) {
    case SqlShape::kSelect:
      return kSelect;
    case SqlShape::kSelectTwo:
      return kSelectTwo;
    case SqlShape::kDistinct:
      return kDistinct;
    case SqlShape::kCount:
      return kCount;
    case SqlShape::kAggregate:
      return kAggregate;
    case SqlShape::kCountPerGroup:
      return kCountPerGroup;
    case SqlShape::kAggregatePerGroup:
      return kAggregatePerGroup;
    case SqlShape::kLargeGroups:
      return kLargeGroups;
    case SqlShape::kSorted:
      return kSorted;
    case SqlShape::kTop:
      break;
  }
  return kTop;
}

std::string_view aggregate_word(SqlAggregate aggregate, Random& random) {
  switch (aggregate) {
    case SqlAggregate::kAverage:
      return one_of({"average", "mean"}, random);
    case SqlAggregate::kSum:
      return one_of({"total", "summed"}, random);
    case SqlAggregate::kMinimum:
      return one_of({"lowest", "smallest", "minimum"}, random);
    case SqlAggregate::kMaximum:
      break;
  }
  return one_of({"highest", "largest", "maximum"}, random);
}

std::string rows_of(const SqlQuery& query, const CorpusSchema& schema, Random& random) {
  std::string text(schema.main.name);
  if (query.is_join) {
    text.append(" ").append(schema.domain->preposition).append(" ").append(schema.other->name);
  }
  const char* joint = " ";
  for (const SqlCondition& condition : query.conditions) {
    text.append(joint).append(ask_condition(condition, random));
    joint = " and ";
  }
  return text;
}

std::string word_of(char name, const SqlQuery& query, const CorpusSchema& schema, Random& random) {
  const bool is_top = query.shape == SqlShape::kTop;
  switch (name) {
    case 'a':
      return words_of(query.column);
    case 'b':
      return words_of(query.second_column);
    case 'g':
      return words_of(query.group_by);
    case 'o':
      return words_of(query.order_by);
    case 'd':
      return query.is_descending ? (is_top ? "highest" : "descending")
                                 : (is_top ? "lowest" : "ascending");
    case 'n':
      return std::to_string(query.number);
    case 't':
      return std::string(schema.main.name);
    case 'f':
      return std::string(aggregate_word(query.aggregate, random));
    default:
      return rows_of(query, schema, random);
  }
}

}  // namespace

std::string ask(const SqlQuery& query, const CorpusSchema& schema, Random& random) {
  std::string text;
  bool is_name = false;
  for (const char letter : one_of(question_templates(query.shape), random)) {
    if (is_name) {
      text += word_of(letter, query, schema, random);
    } else if (letter != '@') {
      text += letter;
    }
    is_name = letter == '@';
  }
  return text;
}

}  // namespace ladder
