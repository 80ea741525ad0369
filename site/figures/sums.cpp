// The live figure of exact sums: the tree's order, and the rounding that makes any order do.
//
// sources: common/optim/quanta.cpp
// sources: common/core/json.cpp
//
// A request: numbers=0.3_0.7_0.9
#include <array>
#include <bit>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>

#include "common/core/tree_sum.hpp"
#include "common/optim/quanta.hpp"
#include "site/figures/request.hpp"
#include "site/figures/wasm.hpp"

namespace ladder {
namespace {

constexpr std::size_t kMostNumbers = 7;  // 5,040 orders
constexpr int kDropped = 12;             // digits that are shown behind the quantum

using Numbers = std::vector<float>;

std::string decimal(double number) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.9g", number);
  return text.data();
}

std::string bits_of(float number) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%08x", std::bit_cast<std::uint32_t>(number));
  return text.data();
}

// ---- orders ---------------------------------------------------------------------------------------

// A sum, and how it is put together.
struct Sum {
  float value = 0;
  std::string how;
};
Sum add(const Sum& a, const Sum& b) {
  return {a.value + b.value, "(" + a.how + " + " + b.how + ")"};
}

struct Order {
  const char* name;
  Sum (*sum)(const std::vector<Sum>& summands);
};

Sum one_after_the_other(const std::vector<Sum>& summands) {
  return std::accumulate(summands.begin() + 1, summands.end(), summands[0], add);
}
Sum from_the_last(const std::vector<Sum>& summands) {
  return std::accumulate(summands.rbegin() + 1, summands.rend(), *summands.rbegin(), add);
}
Sum by_the_tree(const std::vector<Sum>& summands) {
  const auto leaf = [&](int i) { return summands[static_cast<std::size_t>(i)]; };
  return tree_sum(0, static_cast<int>(summands.size()), leaf, add);
}

constexpr std::array<Order, 3> kOrders = {{{"from the first to the last", one_after_the_other},
                                           {"from the last to the first", from_the_last},
                                           {"by the tree, as Ladder's ranks", by_the_tree}}};

// How many different sums there are, one number after the other, in all orders.
std::size_t num_sums(Numbers numbers) {
  std::set<std::uint32_t> found;
  std::ranges::sort(numbers);
  do {
    found.insert(std::bit_cast<std::uint32_t>(
        std::accumulate(numbers.begin() + 1, numbers.end(), numbers[0])));
  } while (std::ranges::next_permutation(numbers).found);
  return found.size();
}

// ---- what is said ----------------------------------------------------------------------------------

// The binary digits of a number from below 2^top to behind 2^bottom.
std::string digits_of(double number, int top, int bottom) {
  std::string digits;
  for (int e = top - 1; e >= bottom - kDropped; --e)
    digits += std::fmod(std::floor(std::abs(std::ldexp(number, -e))), 2) == 1 ? '1' : '0';
  return digits;
}

Numbers numbers_in(const std::string& text) {
  Numbers numbers;
  for (const std::string& each : split(text, '_'))
    numbers.push_back(static_cast<float>(number_in(each, "a number", -1e30, 1e30)));
  check_usage(numbers.size() >= 2 && numbers.size() <= kMostNumbers, "there are ", numbers.size(),
              " numbers: it must be 2 to ", kMostNumbers);
  return numbers;
}

std::string answer(const std::string& text) {
  const Request request(text, {}, {{"numbers", "0.3_0.7_0.9"}});
  const Numbers numbers = numbers_in(request.text("numbers"));
  // As after a step: the quantum follows from the sum's norm.
  const double sum = std::accumulate(numbers.begin(), numbers.end(), 0.0);
  const auto microbatches = static_cast<std::int64_t>(numbers.size());
  const std::vector<double> square = {sum * sum};
  std::vector<float> quantum = {std::ldexp(1.0F, -40)};
  learn_quanta({{square, quantum}}, microbatches);
  Numbers rounded = numbers;
  round_block(rounded.data(), microbatches, quantum[0], share_of_range(microbatches));

  const int bottom = exponent_above(quantum[0]), top = bottom + kExactBits;
  Json json = {{"sum", decimal(sum)},
               {"quantum", bottom},
               {"range", top},
               {"share", exponent_above(share_of_range(microbatches)) + bottom},
               {"sums", num_sums(numbers)},
               {"sums_rounded", num_sums(rounded)},
               {"digits", kExactBits}};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool is_finite = std::isfinite(rounded[i]);
    json["numbers"].push_back(
        {{"number", decimal(numbers[i])},
         {"digits", digits_of(numbers[i], top, bottom)},
         {"rounded", is_finite ? decimal(rounded[i]) : "∞"},
         {"rounded_digits", is_finite ? digits_of(rounded[i], top, bottom) : ""},
         {"quanta", is_finite ? decimal(rounded[i] / quantum[0]) : "∞"},
         {"is_negative", std::signbit(numbers[i])}});
  }
  for (const Order& order : kOrders) {
    std::vector<Sum> as_they_are, of_rounded;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      as_they_are.push_back({numbers[i], std::string("x") + std::to_string(i)});
      of_rounded.push_back({rounded[i], ""});
    }
    const Sum found = order.sum(as_they_are);
    const float exact = order.sum(of_rounded).value;
    json["orders"].push_back({{"name", order.name},
                              {"how", found.how.substr(1, found.how.size() - 2)},
                              {"sum", decimal(found.value)},
                              {"bits", bits_of(found.value)},
                              {"rounded_sum", decimal(exact)},
                              {"rounded_bits", bits_of(exact)}});
  }
  return to_text(json);
}

}  // namespace
}  // namespace ladder

std::string answer_to(const std::string& request) {
  return ladder::answer(request);
}
