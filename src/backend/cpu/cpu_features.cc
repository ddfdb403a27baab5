#include "backend/cpu/cpu_features.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

// __builtin_cpu_supports also checks (XGETBV) that the operating system saves the registers.
bool CanRunAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool CanRunAvx512() {
  return CanRunAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

std::vector<const KernelTable*> RunnableKernels() {
  std::vector<const KernelTable*> tables = {&kPortableKernels};
  if (CanRunAvx2()) tables.push_back(&kAvx2Kernels);
  if (CanRunAvx512()) tables.push_back(&kAvx512Kernels);
  if (CanRunAvx512() && __builtin_cpu_supports("avx512bf16")) tables.push_back(&kAvx512Bf16Kernels);
  return tables;
}

const KernelTable& SelectKernels() { return *RunnableKernels().back(); }

absl::StatusOr<const KernelTable*> KernelsNamed(std::string_view name) {
  const std::vector<const KernelTable*> tables = RunnableKernels();
  for (const KernelTable* table : tables) {
    if (table->name == name) return table;
  }
  const auto append_name = [](std::string* out, const KernelTable* table) { out->append(table->name); };
  return absl::InvalidArgumentError(absl::StrCat("CPU kernels: expected one that this machine can run (",
                                                 absl::StrJoin(tables, ", ", append_name), "), got '",
                                                 std::string(name), "'"));
}

}  // namespace baton
