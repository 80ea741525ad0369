// Products of matrices, and who multiplies them on a CPU.
#pragma once

#include <optional>
#include <string>

#include "common/core/precision.hpp"

namespace at {
class Tensor;
}

namespace ladder {

// The library that multiplies fp32 matrices on the CPU. kOneDnn is oneDNN's packed product, where
// libtorch has it; kBlas what is behind at::addmm, which torch.nn.Linear calls too. Both are
// correct, but their last bits differ: only runs with the same choice are equal to the bit. 16-bit
// matrices are multiplied by at::addmm if has_instructions_for() them, and are widened to fp32 and
// back if not.
enum class Products { kOneDnn, kBlas };

// The faster one for this CPU, by its instructions alone: oneDNN with AVX-512, which it uses better
// than MKL (benchmarks/README.md). On other CPUs MKL is faster, or, on Arm, whichever of OpenBLAS
// and the Arm Compute Library at::addmm takes for a product. libtorch says what the CPU can, so
// ATEN_CPU_CAPABILITY=avx2 in the environment has its say here as well.
Products faster_products();

// Whether this CPU multiplies such numbers without widening them to fp32 first: bf16 with AVX512-BF16
// or AMX, fp16 never, fp32 always. Sums of products are in fp32 in any case.
bool has_instructions_for(NumberFormat format);

std::string cpu_capability();  // what libtorch calls this CPU's instructions: "AVX512"

// x [M, K] times the transpose of weight [N, K], plus bias [N].
at::Tensor times_transposed(Products products, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias);
at::Tensor times_transposed(Products products, const at::Tensor& x, const at::Tensor& weight);

}  // namespace ladder
