#include <algorithm>

#include "common/data/corpus/sql_query.hpp"

namespace ladder {
namespace {

// The template with a word for each @x.
template <class WordOf>
std::string fill(std::string_view text, const WordOf& word_of) {
  std::string filled;
  for (std::size_t i = 0; i < text.size(); ++i)
    filled += text[i] == '@' ? word_of(text[++i]) : std::string(1, text[i]);
  return filled;
}

// Both in SQL and in English; `name_of` says how a column is called there.
template <class NameOf>
std::string fill(std::string_view text, const SqlCondition& condition, const NameOf& name_of) {
  return fill(text, [&](char letter) {
    return letter == 'c'   ? name_of(condition.column)
           : letter == 'v' ? condition.value
                           : condition.upper;
  });
}

const CorpusColumn* column_of(char letter, const SqlQuery& query) {
  return letter == 'a'   ? query.column
         : letter == 'b' ? query.second_column
         : letter == 'g' ? query.group_by
                         : query.order_by;
}

std::string_view one_of(const Templates& choices, Random& random) {
  return choices[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(choices.size())))];
}

std::string words_of(const CorpusColumn* column) {
  std::string words = column->name;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

std::string to_sql(const SqlQuery& query, const CorpusSchema& schema) {
  const std::string& main = schema.main.name;
  const auto name_in = [&](const CorpusTable& table) {
    return [&](const CorpusColumn* column) {
      return query.is_join ? table.name + "." + column->name : column->name;
    };
  };
  const auto rows = [&] {
    std::string sql = main;
    if (query.is_join) {
      const std::string& parent = schema.other->name;
      sql += " JOIN " + parent + " ON " + main + "." + schema.domain->key + " = " + parent + ".id";
    }
    const char* joint = " WHERE ";
    for (const SqlCondition& condition : query.conditions) {
      sql += joint + fill(condition.op->sql, condition,
                          name_in(query.is_join ? *schema.other : schema.main));
      joint = " AND ";
    }
    return sql;
  };
  return fill(query.shape->sql, [&](char letter) -> std::string {
    switch (letter) {
      case 'd':
        return query.is_descending ? "DESC" : "ASC";
      case 'f':
        return std::string(query.aggregate->sql);
      case 'n':
        return std::to_string(query.number);
      case 't':
        return main;
      case 'w':
        return rows();
      default:
        return name_in(schema.main)(column_of(letter, query));
    }
  });
}

std::string ask(const SqlQuery& query, const CorpusSchema& schema, Random& random) {
  const auto rows = [&] {
    std::string text = schema.main.name;
    if (query.is_join) text += " " + schema.domain->preposition + " " + schema.other->name;
    const char* joint = " ";
    for (const SqlCondition& condition : query.conditions) {
      text += joint + fill(one_of(condition.op->words, random), condition, words_of);
      joint = " and ";
    }
    return text;
  };
  return fill(one_of(query.shape->questions, random), [&](char letter) -> std::string {
    switch (letter) {
      case 'd':
        return query.is_descending ? "descending" : "ascending";
      case 'h':
        return query.is_descending ? "highest" : "lowest";
      case 'f':
        return std::string(one_of(query.aggregate->words, random));
      case 'n':
        return std::to_string(query.number);
      case 't':
        return schema.main.name;
      case 'w':
        return rows();
      default:
        return words_of(column_of(letter, query));
    }
  });
}

}  // namespace ladder
