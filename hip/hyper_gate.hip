// Hyper-connections' gated read (hyper_gate.h): formats without codes.
#include "hyper_gate.h"

HYPER_GATE_FORMAT(f32, F32Format)
HYPER_GATE_FORMAT(f16, F16Format)
HYPER_GATE_FORMAT(bf16, Bf16Format)
HYPER_GATE_FORMAT(fp8, Fp8Format)
