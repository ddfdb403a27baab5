// clang-format off
// The kernels of one instruction set, one entry per line. A kernels_<isa>.cc includes this file
// into the initialiser list of its table.
.linear_f32 = LinearF32,
.linear_bf16 = LinearBf16,
.round_to_bf16 = RoundRowToBf16,
.kv = {/* kBf16 */ {.attend = AttendBf16, .store_k = StoreKBf16, .store_v = StoreVBf16},
       /* kF32 */ {.attend = AttendF32, .store_k = StoreKF32, .store_v = StoreVF32}},
.merge_attention = MergeAttention,
.finish_attention = FinishAttention,
.rms_norm = RmsNormRow,
.rope = RopeRow,
