// Experts' products for many rows (moe_gemm.h): formats with blocks of 32.
#include "moe_gemm.h"

MOE_GEMM(q8_0, Q8_0Format)
MOE_GEMM(q4_0, Q4_0Format)
MOE_GEMM(q4_1, Q4_1Format)
MOE_GEMM(q5_0, Q5_0Format)
MOE_GEMM(q5_1, Q5_1Format)
MOE_GEMM(iq4_nl, Iq4NlFormat)
