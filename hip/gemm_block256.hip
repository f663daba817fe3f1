// Products with many rows (gemm.h): formats with blocks of 256.
#include "gemm.h"

GEMM(q2_k, Q2KFormat)
GEMM(q3_k, Q3KFormat)
GEMM(q4_k, Q4KFormat)
GEMM(q5_k, Q5KFormat)
GEMM(q6_k, Q6KFormat)
GEMM(iq4_xs, Iq4XsFormat)
