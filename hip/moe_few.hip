// Experts' products for at most eight rows (moe_few.h): formats without codes.
#include "moe_few.h"

MOE_FEW_FORMAT(f32, F32Format)
MOE_FEW_FORMAT(f16, F16Format)
MOE_FEW_FORMAT(bf16, Bf16Format)
MOE_FEW_FORMAT(fp8, Fp8Format)
