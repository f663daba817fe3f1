// Products with many rows (gemm.h): formats with blocks of 32.
#include "gemm.h"

GEMM(q8_0, Q8_0Format)
GEMM(q4_0, Q4_0Format)
GEMM(q4_1, Q4_1Format)
GEMM(q5_0, Q5_0Format)
GEMM(q5_1, Q5_1Format)
GEMM(iq4_nl, Iq4NlFormat)
