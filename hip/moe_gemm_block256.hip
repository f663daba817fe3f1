// Experts' products for many rows (moe_gemm.h): formats with blocks of 256.
#include "moe_gemm.h"

MOE_GEMM(q2_k, Q2KFormat)
MOE_GEMM(q3_k, Q3KFormat)
MOE_GEMM(q4_k, Q4KFormat)
MOE_GEMM(q5_k, Q5KFormat)
MOE_GEMM(q6_k, Q6KFormat)
MOE_GEMM(iq4_xs, Iq4XsFormat)
