// For the judge, level 2: which elements of a weight a part has. Each element is its own number in
// the whole, so a piece shows where it is from. Then models in parts beside whole ones.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/model/build_layers.hpp"
#include "common/model/cut.hpp"
#include "common/model/family.hpp"
#include "common/model/parts.hpp"
#include "common/model/pieces.hpp"
#include "common/testing/closeness.hpp"
#include "common/testing/examination.hpp"

namespace ladder::tensor_parallel {

// A weight that is cut: along its columns, which are those of several matrices side by side, or
// along its rows.
struct CutWeight {
  bool is_by_columns = true;
  std::int64_t heads = 1, grain = 1;  // things that are not cut, and how long each is
  std::int64_t num_matrices = 1;
  std::int64_t others = 3;  // rows, or columns, of which each part has all; 0: a bias
  int total = 2;

  std::int64_t numel_cut() const { return heads * grain * num_matrices; }
  std::vector<std::int64_t> shape() const {
    if (others == 0) return {numel_cut()};
    return is_by_columns ? std::vector{others, numel_cut()} : std::vector{numel_cut(), others};
  }
  Cut cut() const {
    return is_by_columns
               ? cut_columns(std::max<std::int64_t>(others, 1), numel_cut(), grain, num_matrices)
               : cut_rows(numel_cut(), others, grain);
  }
  std::string name() const {
    return concat(is_by_columns ? "columns" : "rows", " of ", at::IntArrayRef(shape()),
                  num_matrices > 1 ? concat(", ", num_matrices, " matrices side by side") : "",
                  grain > 1 ? concat(", in heads of ", grain, " channels") : "");
  }
  // The rows or columns of a part.
  std::vector<std::int64_t> wanted(int part) const {
    std::vector<std::int64_t> all;
    for (std::int64_t matrix = 0; matrix < num_matrices; ++matrix) {
      for (std::int64_t i = grain * part_begin(heads, part, total);
           i < grain * part_begin(heads, part + 1, total); ++i)
        all.push_back(matrix * heads * grain + i);
    }
    return all;
  }
};

class CutChecks : public Examination {
 public:
  explicit CutChecks(Communicator& comm) : Examination(comm) { say_only_first(); }

  void cuts(const CutWeight& weight, const std::string& what = "") {
    examine_next(what.empty() ? weight.name() : what, [&](Communicator&) {
      const std::vector<std::int64_t> shape = weight.shape();
      const at::Tensor whole = at::arange(c10::multiply_integers(shape)).view(shape);
      const at::Tensor before = whole.clone(), joined = at::full_like(whole, -1);
      for (int index = 0; index < weight.total; ++index) {
        prefix_ = concat(weight.name(), ", part ", index, " of ", weight.total, ": ");
        const TensorPart part = part_of("whole", shape, weight.cut(), index, weight.total);
        if (part.whole != "whole" || part.shape != shape || part.index != index)
          fault("part_of() has another name, shape or index than it was given");
        const at::Tensor piece = piece_of(part, whole);
        expect_lines(weight, piece, index);
        if (piece.is_alias_of(whole)) fault("piece_of() is no copy: it keeps the whole in memory");
        if (!piece.is_contiguous()) fault("piece_of() is not contiguous");
        const at::Tensor place = place_of(part, joined);
        if (!place.is_alias_of(joined)) fault("place_of() is a copy, not a place in the whole");
        if (place.numel() != piece.numel())
          return fault(
              concat("place_of() has ", place.numel(), " elements, its piece ", piece.numel()));
        place.copy_(piece.reshape(place.sizes()));
      }
      prefix_ = weight.name() + ": ";
      expect("the whole, of which pieces were made,", whole, before);
      expect("what all parts together make of their places", joined, whole);
    });
  }

  // Heads and channels of a model that is cut are those of the whole one.
  void models_are_whole(ModelOptions options, const std::string& what) {
    examine_next(what, [&](Communicator&) {
      prefix_ = concat(what, ", ", options.product_parts, " parts: ");
      const at::Tensor ids = at::arange(2 * options.context).remainder(options.vocab_size);
      const auto logits = [&] {
        return build_layers(options, 1).forward(ids.view({2, options.context})).detach();
      };
      const at::Tensor found = logits();
      options.product_parts = 1;
      const at::Tensor wanted = logits();
      if (found.sizes() != wanted.sizes())
        return fault(concat("the logits are ", found.sizes(), ", not ", wanted.sizes()));
      const double distance = relative_distance(found, wanted);
      if (!(distance <= 1e-5))
        fault(concat("the logits differ by ", distance,
                     " from those of the same model in one piece, more than rounding"));
    });
  }

 private:
  static std::string list_of(const at::Tensor& lines) {
    std::string text;
    for (std::int64_t i = 0; i < lines.numel(); ++i)
      text += concat(i > 0 ? " " : "", lines[i].item<std::int64_t>());
    return text;
  }
  void expect_lines(const CutWeight& weight, const at::Tensor& piece, int index) {
    const std::vector<std::int64_t> wanted = weight.wanted(index), shape = weight.shape();
    const std::int64_t dimension = weight.is_by_columns ? std::ssize(shape) - 1 : 0;
    std::vector<std::int64_t> own_shape = shape;
    own_shape[static_cast<std::size_t>(dimension)] = std::ssize(wanted);
    if (piece.sizes() != at::IntArrayRef(own_shape))
      return fault(concat("its piece is ", piece.sizes(), ", not ", at::IntArrayRef(own_shape)));
    const at::Tensor numbers_of_whole = at::arange(c10::multiply_integers(shape)).view(shape);
    const at::Tensor lines = at::tensor(wanted);
    if (piece.equal(numbers_of_whole.index_select(dimension, lines))) return;
    const at::Tensor first = piece.dim() == 1 ? piece : piece.select(1 - dimension, 0);
    const at::Tensor found = weight.is_by_columns ? first : first.divide(weight.others, "floor");
    fault(concat("it has the ", weight.is_by_columns ? "columns " : "rows ", list_of(found),
                 ", not ", list_of(lines)));
  }
};

}  // namespace ladder::tensor_parallel
