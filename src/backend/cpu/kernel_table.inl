// clang-format off
// One entry a line: the kernels of one instruction set, included into its table's initialiser list.
.linear_f32 = LinearF32,
.linear_bf16 = LinearBf16,
.round_to_bf16 = RoundRowToBf16,
.attend_f32 = AttendF32,
.attend_bf16 = AttendBf16,
.merge_attention = MergeAttention,
.finish_attention = FinishAttention,
.rms_norm = RmsNormRow,
.rope = RopeRow,
