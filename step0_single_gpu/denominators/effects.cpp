#include "step0_single_gpu/denominators/effects.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <sstream>

#include "common/core/check.hpp"
#include "common/optim/norm.hpp"

namespace ladder::lab {
namespace {

double norm(const at::Tensor& tensor) {
  return tensor.to(at::kDouble).norm().item<double>();
}

double clipped(double grad_norm, Recipe recipe) {
  return grad_norm * clip_factor(grad_norm, clip_norm_of(recipe));
}

// How far the runs have moved apart. Runs that started elsewhere are compared by their movements.
double distance(const Outcome& run, const Outcome& right) {
  const at::Tensor moved = run.params - run.start, right_moved = right.params - right.start;
  return norm(moved - right_moved) / norm(right_moved);
}

Effect effect_of(const Outcome& run, const Outcome& right, Recipe recipe) {
  const double grad_norm = run.grad_norms.front(), right_norm = right.grad_norms.front();
  return {.loss = run.losses.back(),
          .distance = distance(run, right),
          .val_loss = run.val_loss,
          .true_val_loss = run.true_val_loss,
          .norm_ratio = grad_norm / right_norm,
          .clipped_ratio = clipped(grad_norm, recipe) / clipped(right_norm, recipe)};
}

std::string fixed(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string cells_of(const Effect& effect, const Effect& right) {
  const double loss_change = effect.loss - right.loss;
  return concat(" ", fixed("%.3f", effect.loss), " (", fixed("%+.3f", loss_change), ") | ",
                fixed("%.3f", effect.distance), " | ", fixed("%.3f", effect.val_loss), " | ",
                fixed("%.3f", effect.true_val_loss), " |");
}

// The words and numbers in each line of the table, but for the ruler under the head.
std::vector<std::vector<std::string>> rows_in(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  bool is_table = false;
  for (std::string line; std::getline(lines, line);) {
    is_table = line.starts_with("| run |") || (is_table && line.starts_with("|"));
    if (!is_table || line.starts_with("| ---")) continue;
    for (char& sign : line) sign = std::string("|()").find(sign) == std::string::npos ? sign : ' ';
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words),
                      std::istream_iterator<std::string>());
  }
  return rows;
}

bool agree(const std::string& word, const std::string& fresh) {
  std::istringstream words(word + " " + fresh);
  double a = 0, b = 0;
  if (!(words >> a >> b)) return word == fresh;
  return std::abs(a - b) <= std::max(0.005, 0.01 * std::abs(b));
}

}  // namespace

std::vector<EffectRow> measure_effects(std::int64_t num_steps, std::uint64_t seed) {
  std::vector<EffectRow> rows = {{"right", {}, {}}, {"right, other weights", {}, {}}};
  for (const Mistake mistake : kAllMistakes) {
    if (mistake != Mistake::kNone) rows.push_back({name_of(mistake), {}, {}});
  }
  for (const Recipe recipe : {Recipe::kSgd, Recipe::kClippedAdamW}) {
    const auto effect = recipe == Recipe::kSgd ? &EffectRow::sgd : &EffectRow::adamw;
    Experiment experiment = {
        .recipe = recipe, .num_steps = num_steps, .data_seed = seed, .model_seed = seed};
    const Outcome right = train_with(Mistake::kNone, experiment);
    rows[0].*effect = effect_of(right, right, recipe);
    experiment.model_seed = seed + 1;
    rows[1].*effect = effect_of(train_with(Mistake::kNone, experiment), right, recipe);
    experiment.model_seed = seed;
    for (std::size_t row = 2; row < rows.size(); ++row) {
      const Mistake mistake = mistake_named(rows[row].name).value();
      rows[row].*effect = effect_of(train_with(mistake, experiment), right, recipe);
    }
  }
  return rows;
}

std::string table_of(const std::vector<EffectRow>& rows) {
  constexpr const char* kColumns = " last loss | parameters | validation | true validation |";
  std::string table =
      concat("| run | gradient norm | clipped | SGD:", kColumns, " AdamW:", kColumns, "\n| --- |");
  for (int column = 0; column < 10; ++column) table += " ---: |";
  table += "\n";
  for (const EffectRow& row : rows) {
    table +=
        concat("| ", row.name, " | ", fixed("%.3f", row.sgd.norm_ratio), " | ",
               fixed("%.3f", row.adamw.clipped_ratio), " |", cells_of(row.sgd, rows.front().sgd),
               cells_of(row.adamw, rows.front().adamw), "\n");
  }
  return table;
}

std::vector<std::string> compare_tables(const std::string& text, const std::string& fresh) {
  const auto old_rows = rows_in(text), new_rows = rows_in(fresh);
  if (old_rows.size() != new_rows.size())
    return {concat("the table has ", old_rows.size(), " lines, not ", new_rows.size())};
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < new_rows.size(); ++i) {
    if (old_rows[i].size() != new_rows[i].size()) {
      differences.push_back(concat("line ", i + 1, " of the table has ", old_rows[i].size(),
                                   " words, not ", new_rows[i].size()));
      continue;
    }
    for (std::size_t k = 0; k < new_rows[i].size(); ++k) {
      if (agree(old_rows[i][k], new_rows[i][k])) continue;
      differences.push_back(concat("line ", i + 1, " of the table, ", new_rows[i][0], ": it says ",
                                   old_rows[i][k], " where a new run has ", new_rows[i][k]));
    }
  }
  return differences;
}

}  // namespace ladder::lab
