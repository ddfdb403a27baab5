// clang-format off
// One entry a line: the kernels of one instruction set, included into its table's initialiser list.
.linear_f32 = LinearF32,
.linear_bf16 = LinearBf16,
.round_to_bf16 = RoundRowToBf16,
