#include "common/data/bpe/split_text.hpp"

#include <oniguruma.h>

#include <optional>

#include "common/core/check.hpp"

namespace ladder {

AddedTokenSearch::AddedTokenSearch(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    is_first_byte_[static_cast<unsigned char>(token.content.front())] = true;
    std::size_t node = 0;
    for (const char byte : token.content) {
      const auto [place, is_new] = nodes_[node].next.try_emplace(byte, nodes_.size());
      node = place->second;
      if (is_new) nodes_.emplace_back();
    }
    nodes_[node].token = token.id;
  }
}

AddedTokenSearch::Found AddedTokenSearch::longest_at_start(std::string_view text) const {
  Found longest;
  const Node* node = &nodes_[0];
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto next = node->next.find(text[i]);
    if (next == node->next.end()) break;
    node = &nodes_[next->second];
    if (node->token >= 0) longest = {node->token, i + 1};
  }
  return longest;
}

void AddedTokenSearch::split(
    std::string_view text, const std::function<void(std::string_view)>& on_text,
    const std::function<void(std::uint32_t, std::string_view)>& on_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Found found = is_first_byte_[static_cast<unsigned char>(text[at])]
                            ? longest_at_start(text.substr(at))
                            : Found();
    if (found.token < 0) {
      ++at;
      continue;
    }
    if (done < at) on_text(text.substr(done, at - done));
    on_token(static_cast<std::uint32_t>(found.token), text.substr(at, found.num_bytes));
    done = at += found.num_bytes;
  }
  if (done < text.size()) on_text(text.substr(done));
}

namespace {

const OnigUChar* as_chars(const char* text) {
  return reinterpret_cast<const OnigUChar*>(text);
}

std::string reason_of(int code, OnigErrorInfo* info) {
  OnigUChar reason[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info == nullptr ? onig_error_code_to_str(reason, code)
                                     : onig_error_code_to_str(reason, code, info);
  return {reinterpret_cast<const char*>(reason), static_cast<std::size_t>(length)};
}

// The library asks for this before several threads use it.
void initialize_engine() {
  static const int kCode = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  check(kCode == ONIG_NORMAL, "Oniguruma, the engine of regular expressions, cannot be started: ",
        [&] { return reason_of(kCode, nullptr); });
}

std::size_t character_bytes(std::string_view text, std::size_t at) {
  if (at == text.size()) return 1;
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

}  // namespace

struct SplitPattern::Engine {
  struct Free {
    void operator()(regex_t* owned) const { onig_free(owned); }
    void operator()(OnigRegion* owned) const { onig_region_free(owned, /*free_self=*/1); }
    void operator()(OnigMatchParam* owned) const { onig_free_match_param(owned); }
  };
  std::string pattern;
  std::unique_ptr<regex_t, Free> regex = nullptr;
  std::unique_ptr<OnigRegion, Free> region{onig_region_new()};
  std::unique_ptr<OnigMatchParam, Free> limits{onig_new_match_param()};

  struct Match {
    std::size_t begin, end;
  };
  std::optional<Match> search(std::string_view text, std::size_t from) {
    const OnigUChar* begin = as_chars(text.data());
    const OnigUChar* end = begin + text.size();
    const int place = onig_search_with_param(regex.get(), begin, end, begin + from, end,
                                             region.get(), ONIG_OPTION_NONE, limits.get());
    if (place == ONIG_MISMATCH) return std::nullopt;
    check(place >= 0, "the pre-tokenizer's pattern ", pattern,
          " fails on the text: ", [&] { return reason_of(place, nullptr); });
    return Match{static_cast<std::size_t>(region->beg[0]),
                 static_cast<std::size_t>(region->end[0])};
  }
};

SplitPattern::SplitPattern(const std::string& pattern)
    : engine_(std::make_unique<Engine>(Engine{.pattern = pattern})) {
  initialize_engine();
  constexpr unsigned long kMostAttempts = 10'000'000;
  onig_initialize_match_param(engine_->limits.get());
  onig_set_retry_limit_in_search_of_match_param(engine_->limits.get(), kMostAttempts);
  regex_t* regex = nullptr;
  OnigErrorInfo info;
  const int code =
      onig_new(&regex, as_chars(pattern.data()), as_chars(pattern.data() + pattern.size()),
               ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  check(code == ONIG_NORMAL, "the pre-tokenizer's pattern ", pattern,
        " is not a regular expression: ", [&] { return reason_of(code, &info); });
  engine_->regex.reset(regex);
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

void SplitPattern::split(std::string_view text,
                         const std::function<void(std::string_view piece, bool is_match)>& visit) {
  std::size_t done = 0, from = 0;
  std::optional<std::size_t> last_end;  // of a match
  while (from <= text.size()) {
    const auto match = engine_->search(text, from);
    if (!match) break;
    const bool is_empty = match->begin == match->end;
    if (is_empty && last_end == match->end) {  // right after another match: it would not end
      from += character_bytes(text, from);
      continue;
    }
    from = match->end;
    last_end = match->end;
    if (done < match->begin) visit(text.substr(done, match->begin - done), false);
    if (!is_empty) visit(text.substr(match->begin, match->end - match->begin), true);
    done = match->end;
  }
  if (done < text.size()) visit(text.substr(done), false);
}

}  // namespace ladder
